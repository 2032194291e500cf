"""The file id, created with the file and kept as long as its history continues.

An exact copy keeps the id; a copy whose history takes another course gets a new one. It looks like a
Kafka cluster id: 16 random bytes in base64url. It is not an event, because replay must not restore it.
"""

from __future__ import annotations

import base64
import os
import re
import sqlite3
from typing import Final, Protocol

from eosdb.errors import CorruptDatabaseError
from eosdb.store.schema.row_checksum import row_checksum

FORM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{20}[AQgw]")
"""128 bits in 22 characters, of which the last encodes two bits."""


def renew(connection: sqlite3.Connection) -> None:
    """Give the file a new id, inside the caller's unit."""
    connection.execute("DELETE FROM eosdb_file")
    file_id = _new()
    connection.execute(
        "INSERT INTO eosdb_file (file_id, checksum) VALUES (?, ?)", (file_id, row_checksum(file_id))
    )


def ensure(connection: sqlite3.Connection) -> None:
    """Give the file an id if it has none, inside the caller's unit."""
    if connection.execute("SELECT 1 FROM eosdb_file").fetchone() is None:
        renew(connection)


class Source(Protocol):
    def execute(self, statement: str, /) -> sqlite3.Cursor: ...


def read(source: Source) -> str:
    """Raises CorruptDatabaseError."""
    row = source.execute("SELECT file_id FROM eosdb_file").fetchone()
    if row is None:
        raise CorruptDatabaseError("the file has lost its id; `eosdb verify`, and restore a backup")
    return str(row[0])


def problems(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the stored id, for `verify`."""
    rows = connection.execute("SELECT file_id, checksum FROM eosdb_file").fetchall()
    if len(rows) == 1 and FORM.fullmatch(rows[0][0]):
        if rows[0][1] == row_checksum(rows[0][0]):
            return []
        return [f"eosdb_file: the id {rows[0][0]} does not fit its checksum"]
    ids = [file_id for file_id, _ in rows]
    return [f"eosdb_file: found {ids}, expected one id of 22 characters of base64url"]


def _new() -> str:
    """Generate an id from the system's random source, so that forked processes do not generate the same
    one. As in Kafka it never starts with `-`, which command lines take for an option."""
    while (text := base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]).startswith("-"):
        pass
    return text
