"""Files in which a row of `records` has a value that eosdb never writes, with its own checksum or with one
that fits: in each partition of a topic another value, and in the last one none."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import adler32

import eosdb
from eosdb import ManualClock
from eosdb.log import checksum

NOW: Final = 1_700_000_000_000
VALUES: Final[dict[str, Any]] = {
    "null": None, "text": "x", "digits": "5", "blob": b"\x01\x02", "negative": -1, "least": -(2**63),
    "2": 2, "32768": 32_768, "70000": 70_000, "2^31": 2**31, "greatest": 2**63 - 1, "float": 1.5,
    "infinite": float("inf"),
}  # fmt: skip
COLUMNS: Final = (*checksum._NAMES, "key", "value", "headers", "checksum")
ROWS: Final = {"data": 1, "marker": 3}
"""The offset of a row of each kind."""
CASES: Final = [
    *((value, True) for value in VALUES.values()),
    *((VALUES[name], False) for name in VALUES if not name.startswith(("2", "3", "7"))),
]
WHOLE: Final = len(CASES)
"""The partition in which nothing is forged."""
END: Final = 8
"""Of each partition."""


def fill(path: Path, partitions: int = WHOLE + 1) -> None:
    """In each partition the same: three committed records, three aborted ones, and the markers."""
    with eosdb.connect(path, clock=ManualClock(NOW), durability="off") as db:
        db.admin.create_topic("t", partitions=partitions, config={"retention.ms": -1})
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        for transaction in range(2):
            producer.begin_transaction()
            for partition in range(partitions):
                for i in range(3):
                    producer.send(
                        "t", b"v%d" % i, key=b"k", partition=partition, headers=[("h", b"1")],
                        timestamp=NOW + 10 * transaction + i,
                    )  # fmt: skip
            producer.flush()
            producer.abort_transaction() if transaction else producer.commit_transaction()


@contextmanager
def loosened(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file on which the table takes values of any type; after the block it is as strict
    as before, and has them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        (strict,) = file.execute(
            "SELECT sql FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
        triggers = file.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (table,)
        ).fetchall()
        for name, _ in triggers:
            file.execute(f'DROP TRIGGER "{name}"')
        loose = re.sub(r"\b(INT|TEXT)\b", "BLOB", strict.replace(" NOT NULL", ""))
        _set(file, table, re.sub(r"STRICT(, )?", "", loose))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        yield file
        _set(file, table, strict)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for _, sql in triggers:
            file.execute(sql)


def _set(file: sqlite3.Connection, table: str, sql: str) -> None:
    file.execute("PRAGMA writable_schema = ON")
    file.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, table))


def forged(
    source: Path,
    path: Path,
    column: str,
    offset: int,
    cases: Iterable[tuple[Any, bool]] = CASES,
) -> Path:
    """A copy in which each partition has one of the values in this column of the row at this offset."""
    shutil.copy(source, path)
    with loosened(path, "records") as file:
        for partition, (value, fits) in enumerate(cases):
            _forge(file, partition, offset, column, value, fits=fits)
    return path


def _forge(
    file: sqlite3.Connection, partition: int, offset: int, column: str, value: Any, *, fits: bool
) -> None:
    (rowid,) = file.execute(
        'SELECT rowid FROM records WHERE "offset" = ? AND partition_id = (SELECT partition_id '
        "FROM partitions WHERE topic = 't' AND partition = ?)",
        (offset, partition),
    ).fetchone()
    is_text = column == "headers" and value not in VALUES.values()
    file.execute(
        f'UPDATE OR IGNORE records SET "{column}" = {"CAST(? AS TEXT)" if is_text else "?"} '
        "WHERE rowid = ?",
        (value, rowid),
    )
    if fits and column != "checksum":
        *cells, control = file.execute(
            "SELECT key, value, headers, control FROM records WHERE rowid = ?", (rowid,)
        ).fetchone()
        key, val, headers = map(_sum, cells)
        content = 3 * key + val + 5 * headers
        if control in ("COMMIT", "ABORT"):
            content = checksum.MARKER
        terms = {name: f'"{name}"' for name in checksum._NAMES} | {"checksum": str(content)}
        file.execute(
            f"UPDATE records SET checksum = {checksum.stored(terms)} WHERE rowid = ?", (rowid,)
        )


def _sum(cell: Any) -> int:
    if cell is None:
        return 0
    if isinstance(cell, bytes):
        return adler32(cell)
    return adler32(str(cell).encode("utf-8", "surrogateescape"))
