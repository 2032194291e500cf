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
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import Folding, Unit

Source = Unit | sqlite3.Connection
TABLE: Final = "eosdb_scram_credentials"
_USERS: Final = TableOf(TABLE, ScramCredential._fields, "user mechanism", ScramCredential._make)
_ALL: Final = _USERS.where("1 ORDER BY user, mechanism")


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
    return _USERS.find(source, user, mechanism)


def load(source: Source) -> list[ScramCredential]:
    return [*_USERS.read(source, _ALL)]


def credential_set(unit: Folding, event: ScramCredentialSet, position: int) -> None:
    unit.execute(_USERS.replace, event.credential)


def credential_removed(unit: Folding, event: ScramCredentialRemoved, position: int) -> None:
    unit.execute(_USERS.delete, (event.user, event.mechanism))
