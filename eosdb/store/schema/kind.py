"""What a file is: one of eosdb's by its header, or another application's that has eosdb's tables in it.

The header of a file that was adopted belongs to its owner: applications keep the number of their own
schema in `user_version`, and what they are in `application_id`. eosdb writes neither, and knows the file
by its tables.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from eosdb.store.schema.newest import ALEMBICS, APPLICATION_ID, IDENTITY_TABLE

_HAS_BOTH: Final = "SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)"


class Kind(NamedTuple):
    """Of a file that SQLite can read."""

    application_id: int
    """What its header says."""
    version: int | None
    """The number of the newest revision of eosdb's tables; None if there are none, -1 if it cannot be
    told."""
    is_empty: bool
    """Nothing is in it, and nothing is said in its header."""

    @property
    def is_adopted(self) -> bool:
        """Whether eosdb's tables are guests in it."""
        return self.version is not None and self.application_id != APPLICATION_ID


# decisions/0044: the header of an adopted file is its owner's.
def of(connection: sqlite3.Connection) -> Kind:
    """The one place that tells. A file of eosdb's own costs two look-ups in its header."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID:
        return Kind(application_id, int(user_version), False)
    if connection.execute(_HAS_BOTH, (IDENTITY_TABLE, ALEMBICS)).fetchone()[0]:
        return Kind(application_id, _revision(connection), False)
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return Kind(application_id, None, not (objects or application_id or user_version))


def _revision(connection: sqlite3.Connection) -> int:
    found = [str(name) for (name,) in connection.execute(f"SELECT version_num FROM {ALEMBICS}")]
    return int(found[0]) if len(found) == 1 and found[0].isdecimal() else -1
