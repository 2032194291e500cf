"""What a reader is given is what was written, or an error of eosdb's, whichever bit has flipped."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import ConsumerRecord, TopicPartition
from eosdb.errors import CorruptDatabaseError, CorruptRecordError, EosdbError
from tests.maintenance import everything
from tests.maintenance.everything import TP

pytestmark = [pytest.mark.simulation, pytest.mark.both_roads]

FLIPS = 150
"""Of each kind, times the seeds."""
DATA = "partition_id = 1 AND control IS NULL"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("everything") / "all.db"
    everything.fill(path, eosdb.ManualClock(1_700_000_000_000))
    with eosdb.connect(path) as db:
        db.producer(transactional_id="open").init_transactions()  # Ends what was left open.
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path / "all.db"))


def read(db: eosdb.Database, **config: object) -> Iterator[ConsumerRecord]:
    """Everything in the file, poll by poll; ends with the error that a poll raises."""
    with db.consumer(auto_offset_reset="earliest", **config) as consumer:  # type: ignore[arg-type]
        consumer.assign(TopicPartition(t, p) for t, n in (("t", 2), ("c", 1)) for p in range(n))
        while found := consumer.poll():
            yield from found


def all_of(path: Path, **config: object) -> list[ConsumerRecord]:
    with eosdb.connect(path, read_only=True) as db:
        return list(read(db, **config))


def by_place(records: list[ConsumerRecord]) -> dict[tuple[str, int, int], ConsumerRecord]:
    return {record[:3]: record for record in records}


def small_transactions(path: Path) -> None:
    """Of five producers into two partitions by turns, so that much of the file is indexes."""
    with eosdb.connect(path, clock=eosdb.ManualClock(10**12), durability="off") as db:
        db.admin.create_topic("t", partitions=2)
        db.admin.create_topic("c")
        producers = [db.producer(transactional_id=f"p{i}") for i in range(5)]
        for producer in producers:
            producer.init_transactions()
        for i in range(200):
            producer = producers[i % 5]
            producer.begin_transaction()
            for j in range(3):
                producer.send("t", b"v%d.%d" % (i, j), key=b"k%d" % i, partition=i % 2)
            producer.flush()
            producer.commit_transaction() if i % 3 else producer.abort_transaction()


@pytest.mark.parametrize("kind", ["everything", "small transactions"])
def test_no_flipped_bit_makes_a_reader_see_what_was_not_written(
    filled: Path, tmp_path: Path, kind: str, seeds: list[int]
) -> None:
    """Kafka's consumer checks CRCs, and so does this one: no flip may be served.

    Where compaction may have removed records, `verify` alone can tell that more are missing.
    """
    if kind == "small transactions":
        filled = tmp_path / "small.db"
        small_transactions(filled)
    right = by_place(all_of(filled))
    whole = filled.read_bytes()
    rng = random.Random(seeds[0])
    told = 0
    for number in range(FLIPS * len(seeds)):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        found: list[ConsumerRecord] = []
        try:
            with eosdb.connect(path, read_only=True) as db:
                found.extend(read(db))
            assert {place for place in right.keys() - by_place(found) if place[0] != "c"} == set()
        except EosdbError:
            told += 1
        assert all(right.get(record[:3]) == record for record in found), number
        for file in tmp_path.glob(f"{number}.db*"):
            file.unlink()
    assert told > 0


def test_an_aborted_record_stays_aborted_when_its_producer_id_becomes_an_empty_blob(
    db_path: Path,
) -> None:
    """One flipped bit makes the stored type of the number 0 that of an empty blob. SQL adds both as 0,
    so the checksum fits."""
    small_transactions(db_path)
    right = all_of(db_path)
    connection = everything.raw(db_path)
    table = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'records'").fetchone()[0]
    for sql, value in ((table.replace("STRICT", ""), "X''"), (table, None)):
        connection.execute("PRAGMA writable_schema=RESET")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'records'", (sql,))
        connection.close()
        connection = everything.raw(db_path)
        if value is not None:
            connection.execute(f"UPDATE records SET producer_id = {value} WHERE producer_id = 0")
    connection.close()
    with eosdb.connect(db_path, read_only=True) as db:
        assert list(read(db)) == right


def change(path: Path, statement: str) -> None:
    connection = everything.raw(path)
    assert connection.execute(statement).rowcount == 1, statement
    connection.close()


ALTERED = {
    "value": "X'00'",
    "key": "X'00'",
    "headers": "'[[\"h\",null]]'",
    "timestamp": "timestamp + 1",
    "timestamp_type": "1 - timestamp_type",
    "producer_id": "producer_id + 1",
    "is_transactional": "1 - is_transactional",
    "control": "'ABORT'",
}
OF_LOG_RECORDS = {"producer_epoch": "producer_epoch + 100", "sequence": "sequence + 1000"}


@pytest.mark.parametrize("column", ALTERED)
def test_a_poll_ends_at_an_altered_record_and_goes_on_behind_it(path: Path, column: str) -> None:
    right = [record for record in all_of(path) if record[:2] == TP]
    offset = right[10].offset
    change(
        path,
        f'UPDATE records SET {column} = {ALTERED[column]} WHERE {DATA} AND "offset" = {offset}',
    )
    with (
        eosdb.connect(path, read_only=True) as db,
        db.consumer(auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TP])
        found = consumer.poll()
        assert found == right[:10]
        for _ in range(2):
            with pytest.raises(
                CorruptRecordError, match=f"t-0.*offset {offset} .*seek to {offset + 1}"
            ):
                consumer.poll()
            assert consumer.position(TP) == offset
        consumer.seek(TP, offset + 1)
        while polled := consumer.poll():
            found += polled
        assert found == right[:10] + right[11:]


def test_a_missing_record_is_noticed(path: Path) -> None:
    right = [record for record in all_of(path) if record[:2] == TP]
    offset = right[10].offset
    change(path, f'DELETE FROM records WHERE {DATA} AND "offset" = {offset}')
    with eosdb.connect(path, read_only=True) as db:
        found = list(reading_on(db))
    assert found == right[:10] + right[11:]


def reading_on(db: eosdb.Database) -> Iterator[ConsumerRecord]:
    """As somebody who has read what the error says."""
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        while True:
            try:
                if not (found := consumer.poll()):
                    return
                yield from found
            except CorruptRecordError:
                consumer.seek(TP, consumer.position(TP) + 1)


def test_a_missing_marker_is_noticed(path: Path) -> None:
    with eosdb.connect(path, read_only=True) as db:
        (offset,) = next(
            iter(db.query("SELECT min(\"offset\") FROM records WHERE control = 'ABORT'").rows)
        )
    change(path, f'DELETE FROM records WHERE partition_id = 1 AND "offset" = {offset}')
    with pytest.raises(CorruptRecordError, match=f"offset {offset} is missing"):
        all_of(path)


@pytest.mark.parametrize("column", [*ALTERED, *OF_LOG_RECORDS])
def test_a_fetch_of_log_records_checks_every_column(path: Path, column: str) -> None:
    value = {**ALTERED, **OF_LOG_RECORDS}[column]
    change(path, f'UPDATE records SET {column} = {value} WHERE {DATA} AND "offset" = 9')
    with eosdb.connect(path, read_only=True) as db:
        assert [r.offset for r in db.broker.fetch(TP, 0).records] == list(range(9))
        with pytest.raises(CorruptRecordError, match="t-0: the record at offset 9"):
            db.broker.fetch(TP, 9)
        with pytest.raises(CorruptRecordError, match="t-0: the record at offset 9"):
            list(db.admin.scan(TP, 9, 20))
        assert db.broker.fetch(TP, 10).records[0].offset == 10
        assert db.broker.fetch(TP, 9, check_crcs=False).records[0].offset == 9


def test_who_does_not_check_reads_what_is_there(path: Path) -> None:
    change(path, f"UPDATE records SET value = X'6F' WHERE {DATA} AND \"offset\" = 3")
    assert b"o" in [record.value for record in all_of(path, check_crcs=False)]


def test_a_record_that_has_lost_its_checksum_is_damaged(path: Path) -> None:
    """A flipped bit in a row's header makes SQLite leave out its last columns."""
    declared = ("checksum INT NOT NULL", "checksum INT")
    redeclare = "UPDATE sqlite_master SET sql = replace(sql, '{}', '{}') WHERE name = 'records'"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(redeclare.format(*declared))
    change(path, f'UPDATE records SET checksum = NULL WHERE {DATA} AND "offset" = 3')
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(redeclare.format(*reversed(declared)))
    with (
        pytest.raises(CorruptRecordError, match="t-0: the record at offset 3"),
        eosdb.connect(path, read_only=True) as db,
    ):
        db.broker.fetch(TP, 3)


def test_headers_that_are_none_are_no_error_of_json(path: Path) -> None:
    change(path, f"UPDATE records SET headers = '[[' WHERE {DATA} AND \"offset\" = 3")
    with eosdb.connect(path, read_only=True) as db:
        for fetch in (db.broker.fetch, db.broker.fetch_data):
            with pytest.raises(CorruptRecordError, match="offset 3 has invalid headers"):
                fetch(TP, 0, check_crcs=False)


DECIDES: dict[str, Callable[[sqlite3.Connection], object]] = {
    "the last stable offset": lambda file: file.execute(
        "UPDATE partitions SET last_stable_offset = last_stable_offset - 1 WHERE partition_id = 1"
    ),
    "the log start": lambda file: file.execute(
        "UPDATE partitions SET log_start_offset = 5 WHERE partition_id = 1"
    ),
    "who aborted": lambda file: file.execute(
        "UPDATE transaction_index SET producer_id = producer_id + 1 WHERE partition_id = 1"
    ),
    "the first entry is missing": lambda file: file.execute(
        "DELETE FROM transaction_index WHERE partition_id = 1 AND previous_offset = -1"
    ),
    "one in the middle is missing": lambda file: file.execute(
        "DELETE FROM transaction_index WHERE partition_id = 1 AND last_offset = (SELECT "
        "min(last_offset) FROM transaction_index WHERE partition_id = 1 AND previous_offset >= 0)"
    ),
    "the last entry is missing": lambda file: file.execute(
        "DELETE FROM transaction_index WHERE partition_id = 1 AND last_offset = (SELECT "
        "max(last_offset) FROM transaction_index WHERE partition_id = 1)"
    ),
    "all entries are missing": lambda file: file.execute("DELETE FROM transaction_index"),
}


@pytest.mark.parametrize("what", DECIDES)
def test_what_decides_who_sees_what_is_checked_and_rebuilt(path: Path, what: str) -> None:
    right = all_of(path)
    connection = everything.raw(path)
    DECIDES[what](connection)
    connection.close()
    with pytest.raises(CorruptDatabaseError, match="eosdb inspect rebuild"):
        all_of(path)
    with eosdb.connect(path) as db:
        db.rebuild()
    assert all_of(path) == right


NOT_AS_WRITTEN: dict[str, Callable[[eosdb.Database], object]] = {
    "partition_producers SET batches = '[['": lambda db: db.broker.describe_producers(TP),
    "transactional_ids SET partitions = '[{\"topic\":1'": lambda db: db.broker.list_transactions(),
    "transactional_ids SET state = 'Ongoinf'": lambda db: db.broker.list_transactions(),
    "groups SET members = '[{}]'": lambda db: db.broker.describe_group("members"),
    "groups SET state = 'Stablf'": lambda db: db.broker.describe_group("members"),
    "topics SET config = '{'": lambda db: db.admin.describe_topic("t"),
    "eosdb_json_views SET columns = '[{}]'": lambda db: db.admin.list_views(),
    "eosdb_journal SET detail = '{}'": lambda db: list(db.admin.dump_log(TP)),
}


@pytest.mark.parametrize("change", NOT_AS_WRITTEN)
def test_what_is_not_as_eosdb_writes_it_is_damage_and_no_error_of_python(
    path: Path, change: str
) -> None:
    connection, table = everything.raw(path), change.split()[0].removeprefix("eosdb_")
    assert connection.execute(f"UPDATE {change}").rowcount
    connection.close()
    with (
        pytest.raises(CorruptDatabaseError, match=f"{table}: found a row that eosdb never"),
        eosdb.connect(path, read_only=True) as db,
    ):
        NOT_AS_WRITTEN[change](db)
