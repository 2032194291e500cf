"""The users stored in the file: a SCRAM credential for each mechanism (Kafka: ScramControlManager)."""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.errors import (
    InvalidRequestError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from eosdb.events.kinds import ScramCredentialRemoved, ScramCredentialSet
from eosdb.model.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, ScramCredential
from eosdb.model.validation import check_int, check_name, check_text, shown
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.unit import Folding, Unit

Source = Unit | sqlite3.Connection
TABLE: Final = "eosdb_scram_credentials"
_COLUMNS: Final = ", ".join(ScramCredential._fields)
_SAVE: Final = Statement(
    f"INSERT OR REPLACE INTO {{{TABLE}}} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
)
_DELETE: Final = Statement(f"DELETE FROM {{{TABLE}}} WHERE (user, mechanism) = (?, ?)")


def check_user(name: object) -> str:
    """The name, if valid. Raises UnacceptableCredentialError."""
    if (text := check_name("user", name, UnacceptableCredentialError)) == "":
        raise UnacceptableCredentialError("user: got an empty name, expected some text")
    return text


def check_mechanism(name: object) -> str:
    """The name, if it is a SASL mechanism. Raises UnsupportedSaslMechanismError."""
    if isinstance(name, str) and name in MECHANISMS:
        return name
    mechanisms = ", ".join(MECHANISMS)
    raise UnsupportedSaslMechanismError(
        f"mechanism: got {shown(name)}, expected one of {mechanisms}"
    )


def check_credential(given: object) -> ScramCredential:
    """The credential, if valid. Raises InvalidRequestError, UnacceptableCredentialError and
    UnsupportedSaslMechanismError."""
    if not isinstance(given, ScramCredential):
        raise InvalidRequestError(f"credential: got {shown(given)}, expected a ScramCredential")
    check_user(given.user)
    check_mechanism(given.mechanism)
    check_int(
        "iterations", given.iterations, ITERATIONS_MIN, ITERATIONS_MAX, UnacceptableCredentialError
    )
    for name in ("salt", "stored_key", "server_key"):
        check_text(name, getattr(given, name))
    return given


def find(source: Source, user: str, mechanism: str) -> ScramCredential | None:
    row = source.execute(
        f"SELECT {_COLUMNS} FROM {TABLE} WHERE (user, mechanism) = (?, ?)", (user, mechanism)
    ).fetchone()
    return None if row is None else ScramCredential(*row)


def load(source: Source) -> list[ScramCredential]:
    rows = source.execute(f"SELECT {_COLUMNS} FROM {TABLE} ORDER BY user, mechanism")
    return [ScramCredential(*row) for row in rows]


def credential_set(unit: Folding, event: ScramCredentialSet, position: int) -> None:
    unit.execute(_SAVE, event.credential)


def credential_removed(unit: Folding, event: ScramCredentialRemoved, position: int) -> None:
    unit.execute(_DELETE, (event.user, event.mechanism))
