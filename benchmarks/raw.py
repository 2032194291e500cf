"""Raw sqlite3, the limit: the same rows in the same table, with nothing around them.

Table, unique indexes and rows are read out of a file that eosdb has just made, so they cannot drift from
what eosdb stores. Journal and syncing are what `durability="full"` means: WAL and synchronous=FULL.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import TypeAlias

import eosdb

VALUE = os.urandom(100)
MULTI_ROWS = 100
"""Rows in one INSERT of the multi-row contender; more gained nothing."""
SELECT = (
    'SELECT partition_id, "offset", timestamp, timestamp_type, key, value, headers FROM records '
    'ORDER BY partition_id, "offset"'
)
"""What a ConsumerRecord has, in the order in which a consumer gets it."""

Statements: TypeAlias = list[tuple[str, list[object]]]


@dataclass(frozen=True, slots=True)
class Shape:
    """How eosdb stores a record."""

    ddl: str
    columns: tuple[str, ...]
    expression: str
    """What a programmer would write down for a row: a tuple of constants, of counters from `i`, of `key`
    and `value`."""
    row: Callable[..., tuple[object, ...]] = field(init=False)
    """`row(i)`: the i-th record's, with no key and VALUE. Compiled, so that it costs what a tuple costs
    that somebody has written."""

    def __post_init__(self) -> None:
        made = eval(f"lambda i, key=None, value=VALUE: {self.expression}", {"VALUE": VALUE})
        object.__setattr__(self, "row", made)

    @property
    def insert(self) -> str:
        return self.insert_of(1)

    def insert_of(self, rows: int) -> str:
        one = f"({', '.join('?' * len(self.columns))})"
        return f"INSERT INTO records VALUES {', '.join([one] * rows)}"


@cache
def shape() -> Shape:
    """The shape in a file that eosdb makes now, with two records of one transaction in it; without the
    checksum, which nobody would write who does not check."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "shape.db")
        clock = eosdb.ManualClock(start_ms=1_700_000_000_000)
        with eosdb.connect(path, clock=clock, durability="off") as db:
            db.admin.create_topic("t")
            with db.producer(transactional_id="shape") as producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("t", VALUE)
                    producer.send("t", VALUE)
        with closing(sqlite3.connect(path)) as file:
            ddl = file.execute(
                "SELECT sql FROM sqlite_master WHERE tbl_name = 'records' "
                "AND (type = 'table' OR sql LIKE 'CREATE UNIQUE INDEX%') ORDER BY type DESC, name"
            ).fetchall()
            columns = tuple(
                name
                for _, name, *_ in file.execute("PRAGMA table_info(records)")
                if name != "checksum"
            )
            first, second = file.execute(
                f"SELECT {_quoted(columns)} FROM records ORDER BY rowid LIMIT 2"
            ).fetchall()
    plain = ";\n".join(sql for (sql,) in ddl).replace(",\n    checksum INT NOT NULL", "")
    return Shape(plain, columns, _expression(columns, first, second))


def _quoted(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _expression(
    columns: tuple[str, ...], first: tuple[object, ...], second: tuple[object, ...]
) -> str:
    """What stays from one record to the next is a constant, what does not counts up."""
    parts = []
    for name, before, after in zip(columns, first, second, strict=True):
        if name in ("key", "value"):
            parts.append(name)
        elif before == after:
            parts.append(repr(before))
        else:
            assert isinstance(before, int), name
            assert after == before + 1, name
            parts.append(f"{before} + i" if before else "i")
    return f"({', '.join(parts)})"


def open_file(path: Path, *, create: bool = True) -> sqlite3.Connection:
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
    file.execute("PRAGMA journal_mode=WAL")
    file.execute("PRAGMA synchronous=FULL")
    if create:
        file.executescript(shape().ddl)
    return file


def batches(folder: Path, records: int, size: int) -> float:
    """Rows a second by executemany, `size` in each transaction: what one writes first."""
    row, insert = shape().row, shape().insert
    with closing(open_file(folder / "raw.db")) as file:
        start = perf_counter()
        for first in range(0, records, size):
            file.execute("BEGIN")
            file.executemany(insert, [row(i) for i in range(first, first + size)])
            file.execute("COMMIT")
        return records / (perf_counter() - start)


def multi_row(folder: Path, records: int, size: int) -> float:
    """Rows a second when one INSERT takes 100 rows that are there beforehand: the limit of the table."""
    transactions = [ready(first, size) for first in range(0, records, size)]
    with closing(open_file(folder / "raw.db")) as file:
        begun = perf_counter()
        for transaction in transactions:
            write(file, transaction)
        return records / (perf_counter() - begun)


def ready(first: int, size: int) -> Statements:
    """The statements of one transaction of so many rows, with their values."""
    row, made = shape().row, []
    for start in range(first, first + size, MULTI_ROWS):
        count = min(MULTI_ROWS, first + size - start)
        values = [v for i in range(start, start + count) for v in row(i)]
        made.append((shape().insert_of(count), values))
    return made


def write(file: sqlite3.Connection, transaction: Statements) -> None:
    file.execute("BEGIN")
    for insert, values in transaction:
        file.execute(insert, values)
    file.execute("COMMIT")


def seconds_of(work: Callable[[int], None], threads: int) -> float:
    """How long it takes until all threads have done their share."""
    workers = [Thread(target=work, args=(number,)) for number in range(threads)]
    start = perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return perf_counter() - start


def select(path: Path) -> float:
    """Rows a second by plain iteration over what a ConsumerRecord has."""
    with closing(sqlite3.connect(path)) as file:
        start, count = perf_counter(), 0
        for _ in file.execute(SELECT):
            count += 1
        return count / (perf_counter() - start)


def copy_of(path: Path, target: Path) -> None:
    """The records of an eosdb file, without control records, in the raw table."""
    with closing(open_file(target)) as file:
        file.execute("ATTACH ? AS source", (str(path),))
        for rows in _pages(file):
            file.execute("BEGIN")
            file.executemany(shape().insert, rows)
            file.execute("COMMIT")


def _pages(file: sqlite3.Connection) -> Iterator[list[tuple[object, ...]]]:
    cursor = file.execute(
        f"SELECT {_quoted(shape().columns)} FROM source.records WHERE control IS NULL ORDER BY rowid"
    )
    while rows := cursor.fetchmany(1_000):
        yield rows
