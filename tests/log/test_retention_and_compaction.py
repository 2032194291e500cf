"""What time and size take away, what compaction keeps, and that a reader never misses what it needs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from tests.readers import committed_values

TP = TopicPartition("t", 0)
DAY = 86_400_000


def append(db: eosdb.Database, *records: Record) -> None:
    db.broker.append(TP, RecordBatch(list(records)))


def offsets_of(db: eosdb.Database) -> list[int]:
    start = db.broker.offsets(TP).log_start_offset
    return [record.offset for record in db.broker.fetch(TP, start).records]


def in_transaction(db: eosdb.Database, name: str, records: list[Record], *, commit: bool) -> None:
    me = db.broker.init_producer_id(name)
    db.broker.add_partitions_to_txn(name, *me, [TP])
    db.broker.append(TP, RecordBatch(records, *me, 0, True), transactional_id=name)
    db.broker.end_txn(name, *me, commit)


# -- retention -----------------------------------------------------------------------------------


def test_old_records_go(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    for _ in range(3):
        append(db, Record(value=b"v"))
        clock.advance(500)
    assert db.housekeeping().deleted_records == 1
    assert (offsets_of(db), db.broker.offsets(TP).log_start_offset) == ([1, 2], 1)
    clock.advance(10_000)
    db.housekeeping()
    assert db.broker.offsets(TP).log_start_offset == db.broker.offsets(TP).log_end_offset == 3
    append(db, Record(value=b"next"))
    assert offsets_of(db) == [3]
    assert db.verify().ok


def test_a_young_record_keeps_the_old_ones_behind_it(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    append(db, Record(timestamp=clock.time_ms()), Record(timestamp=5))
    assert db.housekeeping().deleted_records == 0


def test_a_record_of_the_future_is_as_old_as_its_append(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Microseconds for milliseconds: neither retention nor the compaction lag waits until then."""
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    lag = {"cleanup.policy": "compact", "min.compaction.lag.ms": 1_000}
    db.admin.create_topic("c", config=lag)
    future = Record(b"k", b"v", timestamp=clock.time_ms() + 400 * 86_400_000)
    append(db, future)
    for _ in range(2):
        db.broker.append(TopicPartition("c", 0), RecordBatch([future, future]))
    (told, _) = [it for it in caplog.records if "in the future" in it.getMessage()]
    assert "400.0 days" in told.getMessage()
    clock.advance(1_000)
    append(db, Record(value=b"young"))
    assert db.housekeeping().deleted_records == 0
    clock.advance(1)
    db.housekeeping()
    assert offsets_of(db) == [1]
    kept = db.broker.fetch(TopicPartition("c", 0), 0).records
    assert [record.offset for record in kept] == [3]
    assert db.verify().ok


def test_the_oldest_bytes_beyond_the_limit_go(db: eosdb.Database) -> None:
    db.admin.create_topic("t", config={"retention.bytes": 250})
    append(db, *[Record(value=b"x" * 100)] * 5)
    assert db.housekeeping().deleted_records == 2
    assert offsets_of(db) == [2, 3, 4], "as in Kafka, at least retention.bytes stay"
    append(db, Record(key=b"k" * 100, value=b"x" * 50))
    db.housekeeping()
    assert offsets_of(db) == [4, 5]
    assert db.verify().ok


def test_a_policy_without_delete_keeps_everything(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1, "cleanup.policy": "compact"})
    append(db, Record(key=b"k", value=b"v"))
    clock.advance(DAY)
    db.housekeeping()
    assert offsets_of(db) == [0]
    with pytest.raises(eosdb.PolicyViolationError):
        db.broker.delete_records(TP, 1)


def test_retention_may_pass_an_open_transaction(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    me = db.broker.init_producer_id("a", 900_000)
    db.broker.add_partitions_to_txn("a", *me, [TP])
    batch = RecordBatch([Record(value=b"old")], *me, 0, True)
    db.broker.append(TP, batch, transactional_id="a")
    clock.advance(5_000)
    append(db, Record(value=b"young"))
    db.housekeeping()
    offsets = db.broker.offsets(TP)
    assert (offsets.log_start_offset, offsets.first_unstable_offset) == (1, 1)
    assert offsets.last_stable_offset == 1
    db.broker.end_txn("a", *me, True)
    assert committed_values(db, TP) == [b"young"]
    assert db.verify().ok
    db.rebuild()
    assert db.verify().ok


def test_the_transaction_index_ends_at_the_log_start_that_delete_records_has_moved(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("t", config={"retention.ms": -1})
    for number in range(3):
        in_transaction(db, f"gone {number}", [Record(value=b"v")], commit=False)
    in_transaction(db, "half", [Record(value=b"v"), Record(value=b"v")], commit=False)
    db.broker.delete_records(TP, 7)

    def indexed() -> list[int]:
        rows = db.query("SELECT last_offset FROM transaction_index ORDER BY 1").all()
        return [offset for (offset,) in rows]

    assert indexed() == [1, 3, 5, 8]
    db.housekeeping()
    assert indexed() == [8], "one of its records can still be read"
    assert committed_values(db, TP) == []
    db.broker.delete_records(TP, -1)
    db.housekeeping()
    assert indexed() == []
    rows = db.query(
        "SELECT json_extract(detail, '$.log_start_offset'), json_extract(detail, '$.reason') "
        "FROM journal WHERE kind = 'LogStartOffsetMoved' ORDER BY position"
    )
    asked, cut = "delete_records", "transaction index"
    assert rows.all() == [(7, asked), (7, cut), (9, asked), (9, cut)]
    assert db.verify().ok
    db.rebuild()
    assert indexed() == []


def test_writes_run_housekeeping_by_themselves(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("t", config={"retention.ms": 1_000})
    append(db, Record(value=b"old"))
    clock.advance(300_000)
    append(db, Record(value=b"new"))
    assert offsets_of(db) == [1]


def test_a_deleted_topic_leaves_no_rows_and_its_name_is_free(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.admin.create_topic("other")
    append(db, *[Record(value=b"v")] * 10)
    db.broker.offset_commit("g", {TP: eosdb.OffsetAndMetadata(5)})
    db.admin.delete_topic("t")
    assert list(db.query("SELECT count(*) FROM records").rows) == [(0,)]
    assert db.broker.offset_fetch("g") == {}
    db.admin.create_topic("t", partitions=2)
    append(db, Record(value=b"fresh"))
    assert offsets_of(db) == [0]
    report = db.verify()
    assert report.ok, report.problems


def test_a_transaction_over_a_deleted_topic_still_ends(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    me = db.broker.init_producer_id("a")
    db.broker.add_partitions_to_txn("a", *me, [TP])
    db.admin.delete_topic("t")
    db.broker.end_txn("a", *me, True)
    assert db.broker.describe_transactions(["a"])["a"].state == "CompleteCommit"
    assert db.verify().ok


# -- compaction ----------------------------------------------------------------------------------


def compacted(db: eosdb.Database, **config: object) -> None:
    settings = {"cleanup.policy": "compact", **{k.replace("_", "."): v for k, v in config.items()}}
    db.admin.create_topic("t", config=settings)


def test_the_newest_record_of_each_key_stays_where_it_is(db: eosdb.Database) -> None:
    compacted(db)
    append(db, *[Record(key=b"k%d" % (i % 3), value=b"%d" % i) for i in range(9)])
    assert db.housekeeping().compacted_records == 6
    assert offsets_of(db) == [6, 7, 8]
    assert db.broker.offsets(TP).log_start_offset == 0
    assert db.broker.fetch(TP, 0).records[0].offset == 6
    append(db, Record(key=b"k0", value=b"new"))
    assert db.housekeeping().compacted_records == 1
    assert offsets_of(db) == [7, 8, 9]
    assert db.verify().ok
    db.rebuild()
    assert db.verify().ok


def test_a_record_without_key_is_refused(db: eosdb.Database) -> None:
    compacted(db)
    with pytest.raises(eosdb.InvalidRecordError, match="key"):
        append(db, Record(value=b"v"))


def test_aborted_data_goes_and_supersedes_nothing(db: eosdb.Database) -> None:
    compacted(db)
    append(db, Record(key=b"k", value=b"kept"))
    in_transaction(db, "a", [Record(key=b"k", value=b"aborted")], commit=False)
    db.housekeeping()
    assert offsets_of(db) == [0, 2]
    assert committed_values(db, TP) == [b"kept"]


def test_nothing_from_the_first_open_transaction_on_is_touched(db: eosdb.Database) -> None:
    compacted(db)
    append(db, Record(key=b"k", value=b"1"), Record(key=b"k", value=b"2"))
    me = db.broker.init_producer_id("a")
    db.broker.add_partitions_to_txn("a", *me, [TP])
    batch = RecordBatch([Record(key=b"k", value=b"open")], *me, 0, True)
    db.broker.append(TP, batch, transactional_id="a")
    append(db, Record(key=b"k", value=b"4"), Record(key=b"k", value=b"5"))
    db.housekeeping()
    assert offsets_of(db) == [1, 2, 3, 4]
    db.broker.end_txn("a", *me, False)
    db.housekeeping()
    assert committed_values(db, TP) == [b"5"]


def test_a_tombstone_stays_for_delete_retention_after_it_was_first_seen(
    db: eosdb.Database, clock: ManualClock
) -> None:
    compacted(db, delete_retention_ms=1_000)
    append(db, Record(key=b"k", value=b"v"), Record(key=b"k", value=None))
    clock.advance(5_000)
    db.housekeeping()
    assert offsets_of(db) == [1]
    clock.advance(999)
    db.housekeeping()
    assert offsets_of(db) == [1]
    clock.advance(1)
    db.housekeeping()
    assert offsets_of(db) == []
    assert db.verify().ok


def test_a_marker_stays_while_its_transaction_has_data_and_a_while_after(
    db: eosdb.Database, clock: ManualClock
) -> None:
    compacted(db, delete_retention_ms=1_000)
    in_transaction(db, "a", [Record(key=b"k", value=b"1")], commit=True)
    db.housekeeping()
    clock.advance(5_000)
    db.housekeeping()
    assert offsets_of(db) == [0, 1]
    append(db, Record(key=b"k", value=b"2"))
    db.housekeeping()
    assert offsets_of(db) == [1, 2], "the data is gone, the marker was not empty before"
    append(db, Record(key=b"other", value=b"3"))
    db.housekeeping()
    clock.advance(999)
    db.housekeeping()
    assert offsets_of(db) == [1, 2, 3]
    clock.advance(1)
    db.housekeeping()
    assert offsets_of(db) == [2, 3]
    assert db.verify().ok


@pytest.mark.slow
def test_the_time_index_of_a_compacted_topic_has_no_entries_between_which_nothing_is_left(
    db: eosdb.Database, clock: ManualClock
) -> None:
    compacted(db)
    append(db, Record(key=b"first", value=b"kept"))
    for _ in range(40):
        clock.advance(1_000)
        append(db, Record(key=b"k", value=bytes(70_000)))
    append(db, Record(key=b"last", value=b"kept"))

    def answers() -> list[int]:
        times = range(clock.time_ms() - 41_000, clock.time_ms() + 1, 500)
        found = (db.broker.list_offsets(TP, time).offset for time in times)
        return [offset for offset in found if offset in (0, 40, 41)]

    (before,) = db.query("SELECT count(*) FROM time_index").all()[0]
    told = set(answers())
    db.housekeeping()
    assert offsets_of(db) == [0, 40, 41]
    (after,) = db.query("SELECT count(*) FROM time_index").all()[0]
    assert before >= 39
    assert after <= 3, "as many as there are records, whatever was written"
    assert set(answers()) == told == {0, 40}
    assert db.verify().ok
    for _ in range(40):
        clock.advance(1_000)
        append(db, Record(key=b"k", value=bytes(70_000)))
    assert db.broker.list_offsets(TP, clock.time_ms()).offset == 81
    assert db.broker.list_offsets(TP, clock.time_ms() - 39_000).offset == 42
    db.housekeeping()
    assert db.broker.list_offsets(TP, clock.time_ms() - 39_000).offset == 81
    assert db.verify().ok


def test_young_records_are_left_alone(db: eosdb.Database, clock: ManualClock) -> None:
    compacted(db, min_compaction_lag_ms=1_000)
    append(db, Record(key=b"k", value=b"1"))
    clock.advance(600)
    append(db, Record(key=b"k", value=b"2"))
    db.housekeeping()
    assert offsets_of(db) == [0, 1]
    clock.advance(1_000)
    db.housekeeping()
    assert offsets_of(db) == [1]


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEP = st.one_of(
    st.tuples(st.just("plain"), KEYS, st.booleans()),
    st.tuples(st.just("commit"), KEYS, st.booleans()),
    st.tuples(st.just("abort"), KEYS, st.booleans()),
    st.tuples(st.just("clean"), st.just(b""), st.just(False)),
    st.tuples(st.just("wait"), st.just(b""), st.just(False)),
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=25))
def test_a_reader_that_comes_late_ends_with_the_same_values(
    steps: list[tuple[str, bytes, bool]],
) -> None:
    """Whenever compaction runs, folding what is left by key gives what folding everything gives."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(1_700_000_000_000)
        with eosdb.connect(Path(folder) / "c.db", clock=clock, durability="off") as db:
            compacted(db, delete_retention_ms=1_000)
            expected: dict[bytes | None, bytes] = {}
            for i, (what, key, tombstone) in enumerate(steps):
                record = Record(key=key, value=None if tombstone else b"%d" % i)
                if what == "clean":
                    db.housekeeping()
                    continue
                if what == "wait":
                    clock.advance(700)
                    continue
                if what == "plain":
                    append(db, record)
                else:
                    in_transaction(db, "t", [record], commit=what == "commit")
                if what != "abort":
                    expected.pop(key, None)
                    if record.value is not None:
                        expected[key] = record.value
            db.housekeeping()
            consumer = db.consumer(auto_offset_reset="earliest")
            consumer.assign([TP])
            found: dict[object, object] = {}
            for record_ in consumer.poll(max_records=1_000):
                found.pop(record_.key, None)
                if record_.value is not None:
                    found[record_.key] = record_.value
            assert found == expected
            report = db.verify()
            assert report.ok, report.problems
