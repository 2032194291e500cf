"""The table `eosdb_file`: the file's id, its place, and the oldest eosdb that can read its schema.

The id is created with the file and kept as long as its history continues. An exact copy keeps it; a copy
with another history gets a new one. It looks like a Kafka cluster id: 16 random bytes in base64url. It is
not an event, because replay must not restore it.

The place is the identity that the file system gave the file when its present life began. A copy has another
one, so its first writer begins a new life (decisions/0094). A copy that eosdb makes has the place COPIED.

The other columns say which older programs can open a file of a newer schema. So every schema keeps them.
"""

from __future__ import annotations

import base64
import os
import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from eosdb.errors import CorruptDatabaseError
from eosdb.store.schema.row_checksum import row_checksum

FORM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{20}[AQgw]")
"""128 bits in 22 characters; the last one encodes two bits."""


# decisions/0072: every later version must keep this row as it is, because older programs read it.
class Needs(NamedTuple):
    """The versions of eosdb that can open a file of this schema."""

    read_version: int
    """The lowest schema that a reading program must know. A writing program must know the file's own."""
    first_release: str
    """The first release of eosdb with the file's schema."""


NEWEST: Final = Needs(1, "1.0")
"""The needs of the newest schema. A revision raises `read_version` if a program of the earlier schema would
misread a record, offset, group or transaction."""
COPIED: Final = "copied"
_SAVE: Final = """
INSERT OR REPLACE INTO eosdb_file (file_id, read_version, first_release, place, checksum)
VALUES (?, ?, ?, ?, ?)
"""


def renew(connection: sqlite3.Connection, place: str | None = None) -> None:
    """Give the file a new id, inside the caller's unit; and a place, if it is known."""
    connection.execute("DELETE FROM eosdb_file")
    _save(connection, _new(), place)


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Store the `Needs` of the newest schema inside the caller's unit."""
    _save(connection, *with_place(connection))


def _save(source: Executes, file_id: str, place: str | None, needs: Needs = NEWEST) -> None:
    columns = (file_id, *needs, place)
    source.execute(_SAVE, (*columns, row_checksum(*columns)))


def with_place(source: Executes) -> tuple[str, str | None]:
    """Return the file's id and its place; an empty id if it is missing, no place for a new file. Raises
    CorruptDatabaseError for a damaged row."""
    row = _stored(source)
    return ("", None) if row is None else (row[0], row[-1])


def settle(source: Executes, place: str | None) -> None:
    """Store the file's place inside the caller's unit; None makes it new. Its schema may be newer. Raises
    CorruptDatabaseError for a damaged row."""
    row = _stored(source)
    if row is not None:
        file_id, *needs, _ = row
        _save(source, file_id, place, Needs(*needs))


class Executes(Protocol):
    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor: ...


def read(source: Executes) -> str:
    """Return the file's id. Raises CorruptDatabaseError if it is missing or its row is damaged."""
    row = _stored(source)
    if row is None:
        raise CorruptDatabaseError("the file has lost its id; run `eosdb verify`, restore a backup")
    return str(row[0])


_ROW: Final = "SELECT file_id, read_version, first_release, place, checksum FROM eosdb_file"


def _stored(source: Executes) -> list[Any] | None:
    """The columns of the row, without its checksum."""
    row = source.execute(_ROW).fetchone()
    if row is None:
        return None
    columns: list[Any]
    *columns, checksum = row
    if checksum != row_checksum(*columns):
        raise CorruptDatabaseError(f"eosdb_file: {_unlike(columns)}; restore a backup")
    return columns


def _unlike(columns: Sequence[object]) -> str:
    return f"the row {tuple(columns)} does not fit its checksum"


_UNKNOWN: Final = Needs(0, "")
_OF_DEVELOPMENT: Final = (_UNKNOWN, Needs(10, "1.0"), Needs(11, "1.0"))
"""What files of development versions store; the oldest ones have no such table or columns."""


# decisions/0072: releases number their schemas from 1, too.
def is_of_development(version: int, needs: Needs | None) -> bool:
    """Whether a development version before 1.0 made the file. Their schemas had the numbers 1 to 11."""
    return 1 < version < 12 and needs in _OF_DEVELOPMENT


def needs(connection: sqlite3.Connection) -> Needs | None:
    """Return the stored `Needs`, perhaps of a newer schema; None if the file stores none."""
    try:
        row = connection.execute("SELECT read_version, first_release FROM eosdb_file").fetchone()
    except sqlite3.DatabaseError as error:
        return _UNKNOWN if "no such" in str(error) else None
    return Needs(*row) if row is not None and (*map(type, row),) == (int, str) else None


def problems(connection: sqlite3.Connection) -> list[str]:
    """For `verify`: return the faults of the row in `eosdb_file`."""
    rows = connection.execute(_ROW).fetchall()
    if len(rows) == 1 and FORM.fullmatch(rows[0][0]):
        *columns, checksum = rows[0]
        if checksum == row_checksum(*columns):
            return []
        return [f"eosdb_file: {_unlike(columns)}"]
    ids = [file_id for file_id, *_ in rows]
    return [f"eosdb_file: found {ids}, expected one id of 22 characters of base64url"]


def _new() -> str:
    """Return a random id from the system's generator, so forked processes get different ids. As in Kafka it
    never starts with `-`, which would look like an option."""
    while (text := base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]).startswith("-"):
        pass
    return text
