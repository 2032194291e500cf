"""`verify` looks at every column of every table there is: whichever is altered, it says so."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.log import checksum
from eosdb.store.schema.newest import (
    BASELINE_TABLE,
    in_baseline,
    materialized_tables,
    newest_schema,
)
from eosdb.system import birth
from tests.maintenance import everything

pytestmark = pytest.mark.slow

TABLES = [found.table for found in newest_schema() if found.type == "table"]
FILLED_BY_SPARK_ALONE = {"eosdb_sink_batches", in_baseline("eosdb_sink_batches")}
FOLDED = {in_baseline(table): table for table in materialized_tables()}
"""What differs when the baseline's copy of it has been altered."""
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
    clock = eosdb.ManualClock(1_700_000_000_000)
    everything.begin_a_life(path, clock)
    everything.fill(path, clock, values=7)
    return path


@pytest.fixture(scope="module")
def trimmed(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a baseline just before the newest event."""
    path = copied(filled, tmp_path_factory.mktemp("trimmed"))
    everything.move(path, birth.identity(str(path)))
    config = eosdb.BrokerConfig(history_retention_ms=0)
    with eosdb.connect(path, clock=eosdb.ManualClock(1_700_000_001_000), config=config) as db:
        assert db.housekeeping().trimmed_events > 80
        db.abandon()
    return path


def copied(source: Path, folder: Path) -> Path:
    for file in source.parent.glob("all.db*"):
        shutil.copy(file, folder / file.name)
    return folder / "all.db"


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return copied(filled, tmp_path)


def problems(path: Path) -> tuple[str, ...]:
    try:
        with eosdb.connect(path, read_only=True) as db:
            return db.verify().problems
    except eosdb.CorruptDatabaseError as error:
        return (str(error),)


def test_the_files_have_rows_in_every_table_and_are_right(filled: Path, trimmed: Path) -> None:
    assert problems(filled) == ()
    assert problems(trimmed) == ()
    with everything.changing(trimmed) as connection:
        empty = {
            table
            for table in TABLES
            if connection.execute(f'SELECT 1 FROM "{table}"').fetchone() is None
        }
        assert empty <= FILLED_BY_SPARK_ALONE
        for where in KINDS_OF_RECORDS.values():
            assert connection.execute(f"SELECT 1 FROM records WHERE {where}").fetchone()


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
def test_verify_finds_whatever_column_is_altered(
    filled: Path, trimmed: Path, tmp_path: Path, table: str, column: str
) -> None:
    path = copied(trimmed if table.startswith(BASELINE_TABLE) else filled, tmp_path)
    with everything.changing(path) as connection:
        if table in FILLED_BY_SPARK_ALONE:
            connection.execute(
                f"INSERT INTO \"{table}\" (sink_id, batch_id, held) VALUES ('s', 1, '{{}}')"
            )
        else:
            alter(connection, table, column, "true")
    named = (table, FOLDED.get(table, table), table.removeprefix("eosdb_"))
    assert any(problem.startswith(named) for problem in problems(path)), problems(path)


@pytest.mark.parametrize("kind", KINDS_OF_RECORDS)
@pytest.mark.parametrize("column", [column for table, column in columns() if table == "records"])
def test_in_every_kind_of_record(path: Path, kind: str, column: str) -> None:
    with everything.changing(path) as connection:
        alter(connection, "records", column, KINDS_OF_RECORDS[kind])
    assert any(problem.startswith("records") for problem in problems(path)), problems(path)


@pytest.mark.parametrize("kind", ["commit marker", "abort marker"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("position", "position + 1"), ("producer_id", "producer_id + 1"),
        ("producer_epoch", "producer_epoch + 1"), ("sequence_round", "1"), ("sequence", "7"),
        ("is_transactional", "0"), ("timestamp", "timestamp + 1"),
        ("control", "iif(control = 'COMMIT', 'ABORT', 'COMMIT')"),
    ],
)  # fmt: skip
def test_a_forged_marker_is_found_although_it_fits_its_checksum(
    path: Path, kind: str, column: str, value: str
) -> None:
    terms = {**checksum._NAMES, "checksum": str(checksum.MARKER)}
    with everything.changing(path) as connection:
        (rowid,) = connection.execute(
            f"SELECT max(rowid) FROM records WHERE {KINDS_OF_RECORDS[kind]}"
        ).fetchone()
        connection.execute(f"UPDATE records SET {column} = {value} WHERE rowid = ?", (rowid,))
        forged = f"UPDATE records SET checksum = {checksum.stored(terms)} WHERE rowid = ?"
        connection.execute(forged, (rowid,))
    (problem,) = (found for found in problems(path) if found.startswith("records"))
    name = "sequence" if column == "sequence_round" else column
    assert ("a marker of time" if column == "timestamp" else f"{name} is ") in problem
