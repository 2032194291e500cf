"""The kind of a file: eosdb's own, by its header, or another application's with eosdb's tables in it.

The header of an adopted file belongs to its owner: applications store their schema number in
`user_version` and their identity in `application_id`. eosdb recognises such a file by its tables.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from eosdb.store.schema.newest import ALEMBICS, APPLICATION_ID, IDENTITY_TABLE

_HAS_BOTH: Final = "SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)"


class Kind(NamedTuple):
    application_id: int
    version: int | None
    """The newest revision of eosdb's tables; None without such tables, -1 if unknown."""
    is_empty: bool
    """It has no tables, and its header is unset."""

    @property
    def is_adopted(self) -> bool:
        return self.version is not None and self.application_id != APPLICATION_ID


# decisions/0044: the header of an adopted file is its owner's.
def of(connection: sqlite3.Connection) -> Kind:
    """Determine the kind. For eosdb's own files that takes two look-ups in the header."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID:
        return Kind(application_id, int(user_version), False)
    if connection.execute(_HAS_BOTH, (IDENTITY_TABLE, ALEMBICS)).fetchone()[0]:
        return Kind(application_id, _revision(connection), False)
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return Kind(application_id, None, not (objects or application_id or user_version))


def _revision(connection: sqlite3.Connection) -> int:
    revisions = [str(name) for (name,) in connection.execute(f"SELECT version_num FROM {ALEMBICS}")]
    return int(revisions[0]) if len(revisions) == 1 and revisions[0].isdecimal() else -1
