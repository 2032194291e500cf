"""What is left of a log for its readers (Kafka: CompletedFetch).

Tables first; then random logs, in which the consumer's way and Kafka's own, which follows every record and
marker of `fetch`, must come to the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import AbortedTransaction, LogRecord, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.log.transaction_index import taken_back
from eosdb.model.values import IsolationLevel

pytestmark = pytest.mark.both_roads


@pytest.mark.parametrize(
    ("rows", "aborted", "kept"),
    [
        pytest.param([(0, 7), (2, 7)], [], [0, 2], id="nothing aborted"),
        pytest.param([(0, 7), (1, 7), (3, 7)], [(7, 0, 2)], [3], id="up to its marker"),
        pytest.param([(0, 7), (1, 8), (2, 7)], [(7, 0, 3)], [1], id="another producer's"),
        pytest.param([(0, 7), (2, 7)], [(7, 2, 3)], [0], id="before the transaction"),
        pytest.param(
            [(5, 7), (7, 7), (8, 9)], [(7, 0, 6), (9, 8, 90)], [7], id="began before, ends behind"
        ),
        pytest.param([(1, 7), (9, 7)], [(7, 3, 5), (8, 0, 20)], [1, 9], id="without records here"),
        pytest.param([(0, 7), (2, 7), (4, 7)], [(7, 0, 1), (7, 4, 5)], [2], id="two of one"),
    ],
)
def test_records_of_aborted_transactions_are_left_out(
    rows: list[tuple[int, int]], aborted: list[tuple[int, int, int]], kept: list[int]
) -> None:
    """Rows are an offset and a producer id, transactions a producer id and the offsets of both ends."""
    gone = taken_back(rows, [AbortedTransaction(*each, 100) for each in aborted])
    assert [offset for offset, _ in rows if offset not in gone] == kept


# -- random logs --------------------------------------------------------------------------------

TP = TopicPartition("t", 0)
RECORDS = st.builds(
    Record,
    key=st.sampled_from([b"", b"a", b"b"]),
    value=st.none() | st.binary(max_size=40),
    headers=st.just(()) | st.lists(st.tuples(st.just("h"), st.none() | st.just(b"x")), max_size=2),
    timestamp=st.none(),
)
APPEND = st.tuples(
    st.just("append"), st.sampled_from("abcp"), st.lists(RECORDS, min_size=1, max_size=6)
)
END = st.tuples(st.just("end"), st.sampled_from("abc"), st.booleans())
COMPACT = st.tuples(st.just("compact"), st.just(""), st.none())
DELETE = st.tuples(st.just("delete"), st.just(""), st.integers(0, 5))
STEPS = st.lists(
    st.sampled_from([APPEND] * 6 + [END] * 5 + [COMPACT, DELETE]).flatmap(lambda step: step),
    min_size=8,
    max_size=40,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filter")


def write(db: eosdb.Database, clock: ManualClock, steps: list[tuple[str, str, object]]) -> None:
    """Three transactional producers and a plain one write; compaction and deletion make gaps."""
    config = {"cleanup.policy": "compact,delete", "delete.retention.ms": "0"}
    db.admin.create_topic("t", config=config)
    plain = db.broker.init_producer_id()
    who = {name: db.broker.init_producer_id(name) for name in "abc"}
    sequences = dict.fromkeys("abcp", 0)
    for action, name, what in steps:
        if action == "append":
            assert isinstance(what, list)
            me = plain if name == "p" else who[name]
            batch = RecordBatch(what, *me, sequences[name], name != "p")
            if name != "p":
                db.broker.add_partitions_to_txn(name, *me, [TP])
            db.broker.append(TP, batch, transactional_id=None if name == "p" else name)
            sequences[name] += len(what)
        elif action == "end":
            open_now = db.broker.describe_transactions([name])[name].state == "Ongoing"
            if open_now:
                who[name] = db.broker.end_txn(name, *who[name], bool(what))
                sequences[name] = 0
        elif action == "compact":
            clock.advance(1_000)
            db.housekeeping()
        else:
            assert isinstance(what, int)
            offsets = db.broker.offsets(TP)
            start = min(offsets.log_start_offset + what, offsets.last_stable_offset)
            db.broker.delete_records(TP, start)


def kafkas_way(db: eosdb.Database, level: IsolationLevel, max_bytes: int) -> Iterator[LogRecord]:
    """Every record of `fetch`; aborted producers from the first offset to the marker."""
    offset = db.broker.offsets(TP).log_start_offset
    while True:
        fetched = db.broker.fetch(
            TP, offset, isolation_level=level, max_records=3, max_bytes=max_bytes
        )
        coming = sorted(fetched.aborted_transactions, key=lambda aborted: aborted.first_offset)
        aborted: set[int] = set()
        for record in fetched.records:
            while coming and coming[0].first_offset <= record.offset:
                aborted.add(coming.pop(0).producer_id)
            if record.control is not None:
                if record.control == "ABORT":
                    aborted.discard(record.producer_id)
            elif not (record.is_transactional and record.producer_id in aborted):
                yield record
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset


def consumers_way(
    db: eosdb.Database, level: IsolationLevel, max_records: int, max_bytes: int
) -> Iterator[tuple[object, ...]]:
    offset = db.broker.offsets(TP).log_start_offset
    while True:
        fetched = db.broker.fetch_data(
            TP, offset, isolation_level=level, max_records=max_records, max_bytes=max_bytes
        )
        count = len(fetched.rows.offset)
        size = sum(map(len, filter(None, [*fetched.rows.key, *fetched.rows.value])))
        assert count <= 1 or (count <= max_records and size <= max_bytes)
        yield from zip(
            fetched.rows.offset,
            fetched.rows.timestamp,
            fetched.rows.timestamp_type,
            fetched.rows.key,
            fetched.rows.value,
            fetched.rows.headers or [()] * count,
            strict=True,
        )
        if fetched.stop == offset:
            return
        assert fetched.stop > offset
        offset = fetched.stop


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, max_records=st.integers(1, 12), max_bytes=st.integers(0, 200))
def test_rows_without_what_was_taken_back_are_kafkas_records(
    folder: Path, steps: list[tuple[str, str, object]], max_records: int, max_bytes: int
) -> None:
    clock = ManualClock(1_700_000_000_000)
    for path in folder.iterdir():
        path.unlink()
    with eosdb.connect(folder / "x.db", clock=clock, durability="off") as db:
        write(db, clock, steps)
        for level in ("read_committed", "read_uncommitted"):
            expected = [(*TP, *record[:6]) for record in kafkas_way(db, level, max_bytes)]
            found = [(*TP, *row) for row in consumers_way(db, level, max_records, max_bytes)]
            assert found == expected
            consumer = db.consumer(auto_offset_reset="earliest", isolation_level=level)
            consumer.assign([TP])
            polled: list[eosdb.ConsumerRecord] = []
            while records := consumer.poll(max_records=max_records):
                polled += records
            assert polled == expected
            assert consumer.position(TP) == consumer.end_offsets([TP])[TP]
            consumer.close()
