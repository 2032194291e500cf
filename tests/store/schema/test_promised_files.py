"""What docs/compatibility.md promises of files: those of every schema until now go on, and those of a later
one are refused in a sentence and left alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.events import encoding, kinds
from eosdb.store.schema import file_id, newest
from tests.readers import committed_values
from tests.store.schema.schema_files import VERSIONS, schema_file
from tests.tidy.tree import ROOT

ORDERS = TopicPartition("orders", 0)
LATER = newest.SCHEMA_VERSION + 1


@pytest.fixture
def clock() -> eosdb.ManualClock:
    return eosdb.ManualClock(1_700_000_100_000)


def test_there_is_a_file_of_every_schema() -> None:
    names = {path.name for path in (ROOT / "tests/data").glob("schema_*.db")}
    assert names == {schema_file(version).name for version in VERSIONS}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_every_schema_is_upgraded_and_goes_on(
    tmp_path: Path, clock: eosdb.ManualClock, version: int
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(schema_file(version), path)
    with eosdb.connect(path, clock=clock) as db:
        report = db.verify()
        assert report.ok, report.problems
        check_content(db, [b"committed", b"plain"])
        states = {t.transactional_id: t.state for t in db.broker.list_transactions()}
        assert states == {
            "ended": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing",
        }  # fmt: skip
        db.producer(transactional_id="open").init_transactions()
        with db.producer(transactional_id="ended") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", "of today", headers=[("h", b"\x00")])
                producer.send_offsets_to_transaction({ORDERS: OffsetAndMetadata(7)}, "today")
        content = [b"committed", b"plain", b"of today"]
        check_content(db, content)
        assert db.broker.offset_fetch("today")[ORDERS].offset == 7
        db.rebuild()
        check_content(db, content)
        assert db.verify().ok
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
        db.backup(tmp_path / "backup.db")
        db.extract(tmp_path / "extracted.db")
    for copy in (tmp_path / "backup.db", tmp_path / "extracted.db"):
        with eosdb.connect(copy, clock=clock) as db:
            check_content(db, content)
            assert db.verify().ok


def check_content(db: eosdb.Database, values: list[bytes]) -> None:
    assert committed_values(db, ORDERS) == values
    rows = db.query("SELECT value FROM committed_records WHERE topic = 'orders' ORDER BY 1").all()
    assert sorted(value for (value,) in rows) == sorted(values)
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([ORDERS])
        records = consumer.poll(timeout_ms=1_000)
    assert [record.value for record in records] == values
    assert dict(records[0].headers) == {"h": b"\x00"}
    assert db.broker.offset_fetch("billing")[ORDERS].offset == 1


def test_the_newest_schemas_file_has_an_event_of_every_kind_with_each_of_its_members() -> None:
    """A schema that has been released never gets another kind, member or table: they are a new schema."""
    with closing(sqlite3.connect(schema_file(newest.SCHEMA_VERSION))) as connection:
        lengths: dict[str, int] = {}
        for kind, detail in connection.execute("SELECT kind, detail FROM eosdb_journal"):
            lengths[kind] = max(lengths.get(kind, 0), len(json.loads(detail)))
        schema = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL "
            "AND name NOT IN (SELECT name FROM eosdb_json_views)"
        ).fetchall()
    assert lengths.keys() == encoding.SHAPES.keys()
    for kind, (fields, _, _) in encoding.SHAPES.items():
        absent = fields.names[lengths[kind] :]
        assert {*absent} <= kinds.KINDS[kind]._field_defaults.keys(), kind
    assert sorted(schema) == sorted(newest.newest_schema())


def test_who_makes_a_new_schema_says_who_may_read_it() -> None:
    """A reader that knows schema 1 alone reads a later one only if this says so (decision 72)."""
    assert (newest.SCHEMA_VERSION, file_id.NEWEST) == (1, (1, "1.0"))


def in_a_form_unknown_to_sqlite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[19] = 9  # The lowest version of SQLite's file format that reads it.
    path.write_bytes(data)


def with_a_schema_unknown_to_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = 'CREATE TABLE eosdb_journal OF THE FUTURE' "
            "WHERE name = 'eosdb_journal'"
        )


def without_a_journal(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE eosdb_journal")


def as_it_is(path: Path) -> None: ...


@pytest.mark.parametrize(
    "change",
    [as_it_is, without_a_journal, with_a_schema_unknown_to_sqlite, in_a_form_unknown_to_sqlite],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_a_later_schema_is_refused_in_a_sentence_and_left_alone(
    tmp_path: Path, change: object, read_only: bool
) -> None:
    path = tmp_path / "later.db"
    shutil.copy(schema_file(newest.SCHEMA_VERSION), path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={LATER}")
        connection.execute(f"UPDATE eosdb_file SET read_version = {LATER}, first_release = '1.7'")
    assert callable(change)
    change(path)
    content = path.read_bytes()
    with pytest.raises(
        eosdb.SchemaTooNewError,
        match=rf"has schema {LATER}.*knows up to {LATER - 1}; upgrade eosdb",
    ) as raised:
        eosdb.connect(path, read_only=read_only)
    assert str(path) in str(raised.value)
    assert raised.value.outcome == "not written"
    assert path.read_bytes() == content
    assert not path.with_name("later.db-lock").exists()


@pytest.mark.parametrize("is_adopted", [False, True])
@pytest.mark.parametrize("number", range(2, 12))
def test_a_file_of_a_development_version_is_refused_in_a_sentence_and_left_alone(
    tmp_path: Path, number: int, is_adopted: bool
) -> None:
    """Their schemas had the numbers 1 to 11, and the last two of them named the release 1.0."""
    path = tmp_path / "earlier.db"
    shutil.copy(schema_file(1), path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={number}")
        connection.execute(f"UPDATE eosdb_alembic_version SET version_num = '{number:04}'")
        connection.execute(f"UPDATE eosdb_file SET read_version = {number}")
        if is_adopted:
            connection.execute("PRAGMA application_id=5")
        if number < 6 and not is_adopted:
            connection.execute("DROP TABLE eosdb_file")
        elif number < 10:
            connection.execute("ALTER TABLE eosdb_file DROP COLUMN read_version")
    content = path.read_bytes()
    for options in ({}, {"read_only": True}, {"migrate": False}):
        with pytest.raises(
            eosdb.SchemaOutOfDateError, match=rf"has schema {number} of a development version"
        ) as raised:
            eosdb.connect(path, **options)  # type: ignore[arg-type]
        assert raised.value.outcome == "not written"
    assert path.read_bytes() == content
    assert not path.with_name("earlier.db-lock").exists()
