"""One query over many files: whatever SQL asks, the answer is that over the rows of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb import DatabaseNotFoundError, InvalidRequestError

pytestmark = pytest.mark.slow

FILES = 12
"""More than SQLite attaches."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve files: device number n has n records, and an aborted one."""
    folder = tmp_path_factory.mktemp("fleet")
    for number in range(FILES):
        with eosdb.connect(folder / f"{number:02}.db", durability="off") as db:
            db.admin.create_topic("orders")
            db.admin.create_view("amounts", "orders", {"amount": "INTEGER", "paid": "BOOLEAN"})
            with db.producer(transactional_id="device") as producer:
                producer.init_transactions()
                with producer.transaction():
                    for amount in range(number):
                        producer.send("orders", f'{{"amount": {amount}, "paid": true}}', key="k")
                producer.begin_transaction()
                producer.send("orders", "taken back")
                producer.abort_transaction()
    return folder


def test_the_column_file_tells_the_rows_apart(folder: Path) -> None:
    counts = eosdb.fleet(folder).query(
        "SELECT file, count(*) AS n FROM committed_records GROUP BY file ORDER BY file"
    )
    assert counts.columns == ("file", "n")
    assert counts.all() == [(str(folder / f"{n:02}.db"), n) for n in range(1, FILES)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM committed_records ORDER BY file, partition, offset",
        "SELECT count(*), sum(length(value)) FROM committed_records",
        "SELECT max(\"offset\") FROM main.[committed_records] AS r WHERE `value` LIKE '%1%'",
        "SELECT r.file, count ( * ) FROM committed_records r NATURAL JOIN partition_offsets GROUP BY 1",
        "SELECT key FROM committed_records JOIN partition_offsets USING (file, topic) ORDER BY 1",
        "WITH n AS (SELECT file, count(*) AS n FROM amounts GROUP BY 1) SELECT max(n), min(n) FROM n",
        "SELECT TOPIC, STATUS, count(*) FROM ALL_Records GROUP BY 1, 2",
        "SELECT r.Topic FROM committed_records r nAtural JOIN Partition_Offsets ORDER BY 1",
        "SELECT amount FROM amounts WHERE amount = '3' UNION ALL SELECT 'none'",
        "SELECT kind, count(*) FROM journal GROUP BY kind ORDER BY kind",
        "SELECT 1",
    ],
)
def test_an_answer_is_that_over_the_views_of_all_files(folder: Path, sql: str) -> None:
    expected = sqlite3.connect(":memory:")
    for number, path in enumerate(sorted(folder.glob("*.db"))):
        with eosdb.connect(path, read_only=True) as db:
            for view in (
                "committed_records",
                "partition_offsets",
                "amounts",
                "all_records",
                "journal",
            ):
                rows = db.query(f"SELECT * FROM {view}")
                if number == 0:
                    columns = ", ".join(f'"{column}"' for column in rows.columns)
                    expected.execute(f"CREATE TABLE {view} (file, {columns})")
                marks = ", ".join("?" * (1 + len(rows.columns)))
                expected.executemany(
                    f"INSERT INTO {view} VALUES ({marks})", [(str(path), *row) for row in rows]
                )
    assert eosdb.fleet(folder / "*.db").query(sql).all() == expected.execute(sql).fetchall()
    expected.close()


def test_parameters_types_and_long_answers(folder: Path) -> None:
    fleet = eosdb.fleet([folder / "11.db", folder / "03.db", folder / "11.db"])
    assert [os.path.basename(path) for path in fleet.paths] == ["11.db", "03.db"]
    at = "SELECT count(*) FROM amounts WHERE file = ? AND amount >= ?"
    assert fleet.query(at, [fleet.paths[0], 4]).one() == (7,)
    table = fleet.query("SELECT * FROM amounts").arrow()
    assert [str(field.type) for field in table.schema][:3] == ["string", "int64", "bool"]
    squares = "SELECT a.amount FROM amounts a, amounts b"
    assert sum(1 for _ in fleet.query(squares)) == 14 * 14


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM committed_records", "only reads"),
        ("CREATE TABLE mine (a)", "only reads"),
        ("ATTACH 'other.db' AS other", "only reads"),
        ("PRAGMA hard_heap_limit=1000000", "hard_heap_limit"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT missing FROM amounts", "no such column: missing"),
        ("no SQL", "SQLite refuses"),
    ],
)
def test_a_query_of_many_files_only_reads(folder: Path, statement: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        eosdb.fleet(folder).query(statement).all()


@pytest.mark.parametrize("damage", ["not a database", "another schema", "no view"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, tmp_path: Path, damage: str) -> None:
    for name in ("03.db", "04.db"):
        shutil.copy(folder / name, tmp_path)
    broken = tmp_path / "04.db"
    if damage == "not a database":
        broken.write_text("hello")
    elif damage == "another schema":
        with contextlib.closing(sqlite3.connect(broken)) as connection:
            connection.execute("PRAGMA user_version=0")
    else:
        with eosdb.connect(broken) as db:
            db.admin.drop_view("amounts")
    with pytest.raises(eosdb.EosdbError, match=r"04\.db"):
        eosdb.fleet(tmp_path).query("SELECT * FROM amounts")


def test_a_view_may_have_its_columns_in_another_case_in_another_file(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("03.db", "04.db"):
        shutil.copy(folder / name, tmp_path)
    with eosdb.connect(tmp_path / "04.db") as db:
        db.admin.drop_view("amounts")
        db.admin.create_view("Amounts", "orders", {"Amount": "INTEGER", "paid": "BOOLEAN"})
    counts = eosdb.fleet(tmp_path).query("SELECT count(*), count(AMOUNT) FROM AMOUNTS")
    assert counts.one() == (7, 3), "a view reads a JSON member of its column's very name"


@pytest.mark.parametrize("path", ["nothing.db", "no/such/*.db", "."])
def test_a_name_without_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatabaseNotFoundError, match="found no file; expected"):
        eosdb.fleet(path)
    with pytest.raises(DatabaseNotFoundError):
        eosdb.fleet([])


def test_one_file_is_open_at_a_time(folder: Path) -> None:
    open_files: list[int] = []

    def look(done: int, total: int) -> None:
        assert total == FILES
        open_files.append(len(os.listdir("/proc/self/fd")))

    eosdb.fleet(folder).query("SELECT count(*) FROM committed_records", on_progress=look)
    assert len(open_files) == FILES + 1
    assert max(open_files) - min(open_files) <= 1
