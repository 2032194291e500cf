"""`verify` looks at every column of every table there is: whichever is altered, it says so."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.store.schema.newest import newest_schema
from tests.maintenance import everything

TABLES = [found.table for found in newest_schema() if found.type == "table"]
FILLED_BY_SPARK_ALONE = {"eosdb_sink_batches"}
KINDS_OF_RECORDS = {
    "in a transaction": "is_transactional = 1 AND control IS NULL",
    "of a producer": "producer_id >= 0 AND is_transactional = 0",
    "of no producer": "producer_id < 0",
    "commit marker": "control = 'COMMIT'",
    "abort marker": "control = 'ABORT'",
    "in a compacted topic": "partition_id = (SELECT partition_id FROM partitions WHERE topic = 'c')",
}


def columns() -> list[tuple[str, str]]:
    scratch = sqlite3.connect(":memory:")
    for made in newest_schema():
        if made.type == "table":
            scratch.execute(made.sql)
    found = [
        (table, column)
        for table in TABLES
        for _, column, *_ in scratch.execute(f'PRAGMA table_info("{table}")')
    ]
    scratch.close()
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("everything") / "all.db"
    everything.fill(path, eosdb.ManualClock(1_700_000_000_000))
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    for file in filled.parent.glob("all.db*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / "all.db"


def problems(path: Path) -> tuple[str, ...]:
    try:
        with eosdb.connect(path, read_only=True) as db:
            return db.verify().problems
    except eosdb.CorruptDatabaseError as error:
        return (str(error),)


def test_the_file_has_rows_in_every_table_and_is_right(path: Path) -> None:
    assert problems(path) == ()
    with everything.raw(path) as connection:
        empty = {
            table
            for table in TABLES
            if connection.execute(f'SELECT 1 FROM "{table}"').fetchone() is None
        }
        assert empty <= FILLED_BY_SPARK_ALONE
        for where in KINDS_OF_RECORDS.values():
            assert connection.execute(f"SELECT 1 FROM records WHERE {where}").fetchone()
    connection.close()


def other_values(value: object) -> Iterator[object]:
    """Near by first; some are refused, where a row of this name is there already."""
    if value is None:
        yield from (1, "x", b"x")
    elif isinstance(value, int):
        yield from (value ^ 1 << bit for bit in range(40))
    elif isinstance(value, bytes):
        yield bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    else:
        assert isinstance(value, str)
        yield value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"


def alter(connection: sqlite3.Connection, table: str, column: str, where: str) -> None:
    """Change the column in one row, so that the schema still allows it."""
    names = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
    row = connection.execute(f'SELECT * FROM "{table}" WHERE {where} LIMIT 1').fetchone()
    of_row = " AND ".join(f'"{name}" IS ?' for name in names)
    for other in other_values(row[names.index(column)]):
        try:
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {of_row}', (other, *row))
        except sqlite3.IntegrityError:
            continue
        return
    raise AssertionError(f"{table}.{column} could not be altered")


@pytest.mark.parametrize(("table", "column"), columns())
def test_verify_finds_whatever_column_is_altered(path: Path, table: str, column: str) -> None:
    with everything.raw(path) as connection:
        if table in FILLED_BY_SPARK_ALONE:
            connection.execute(f"INSERT INTO \"{table}\" VALUES ('s', 1, '{{}}')")
        else:
            alter(connection, table, column, "true")
    connection.close()
    assert any(table in problem for problem in problems(path)), problems(path)


@pytest.mark.parametrize("kind", KINDS_OF_RECORDS)
@pytest.mark.parametrize("column", [column for table, column in columns() if table == "records"])
def test_in_every_kind_of_record(path: Path, kind: str, column: str) -> None:
    with everything.raw(path) as connection:
        alter(connection, "records", column, KINDS_OF_RECORDS[kind])
    connection.close()
    assert any(problem.startswith("records") for problem in problems(path)), problems(path)
