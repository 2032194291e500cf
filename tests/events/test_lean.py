"""A row of the journal leaves out what follows from elsewhere, and whoever knows that gets the event back;
a file may mix such rows with those of before, which say everything."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.coordinator.transactions.rows import expected
from eosdb.coordinator.transactions.state import LEGAL_PREVIOUS, TransactionMetadata
from eosdb.events import encoding
from eosdb.events.encoding import NAMED, Lean, encode, fill_in, read, write
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten, TransactionStateChanged
from eosdb.maintenance import housekeeping
from eosdb.model.values import CLASSIC, EPOCH_PER_TRANSACTION, TransactionState
from tests.events.test_encoding import events
from tests.whole_events import check_views, details, say_everything, whole_events

JOINING = ("partitions", "groups")
kinds = st.sampled_from([BatchAppended, MarkerWritten, TransactionStateChanged])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Event, Event]:
    """An event of a lean kind, and what is expected of it: in each field what it says, something else, or
    nothing."""
    kind: Any = draw(kinds)
    event: Any = draw(events(kind))
    other: Any = draw(events(kind))
    if kind is TransactionStateChanged:
        in_order = {name: tuple(sorted({*getattr(event, name)})) for name in JOINING}
        event = draw(st.sampled_from([event, event._replace(**in_order)]))
    choices = {}
    for name in kind._fields:
        some = [getattr(event, name), getattr(other, name), NAMED]
        if name in JOINING:
            some = [some[0], some[1], some[0][1:], ()]
        choices[name] = draw(st.sampled_from(some))
    return event, kind(**choices)


@pytest.mark.slow
@given(pairs())
def test_what_was_left_out_comes_back(pair: tuple[Event, Event]) -> None:
    event, usual = pair
    found = read(write(event, usual))
    if isinstance(found, Lean):
        found = fill_in(found, usual)
    assert found == event
    assert type(found) is type(event)


@pytest.mark.slow
@given(kinds.flatmap(events))
def test_a_row_that_says_everything_means_what_it_always_meant(event: Event) -> None:
    assert read(encode(event)) == event
    assert write(event) == encode(event)


states = st.sampled_from([state for state in TransactionState if LEGAL_PREVIOUS[state]])
numbers = st.integers(-1, 5)
joined = st.frozensets(st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)))
metadata = st.builds(
    TransactionMetadata, st.just("x"), numbers, numbers, numbers, numbers, states, numbers, numbers,
    numbers, joined, st.frozensets(st.sampled_from("gh")), numbers,
    st.sampled_from([CLASSIC, EPOCH_PER_TRANSACTION]),
)  # fmt: skip


@pytest.mark.slow
@given(st.none() | metadata, metadata, numbers)
def test_a_change_and_the_value_before_it_give_the_value_after_it(
    before: TransactionMetadata | None, after: TransactionMetadata, now: int
) -> None:
    """Whatever changes: the rules of the state machine only make it likely that little is said."""
    event = TransactionStateChanged(
        now, "x", after.producer_id, after.producer_epoch, after.last_producer_epoch,
        after.previous_producer_id, None if before is None else before.state, after.state,
        after.timeout_ms, after.start_time_ms, tuple(sorted(after.partitions)),
        tuple(sorted(after.groups)), after.next_producer_id, after.transaction_version,
    )  # fmt: skip
    found = read(write(event, expected(before, after.state, after.transaction_version, now)))
    if isinstance(found, Lean):
        to_state = TransactionState.from_label(found.members.get("to_state", "Ongoing"))
        version = found.members.get("transaction_version", EPOCH_PER_TRANSACTION)
        usual = expected(before, to_state, version, now)
        assert usual is not None
        found = fill_in(found, usual)
    assert found == event


def test_a_row_that_would_pass_for_an_older_one_says_everything() -> None:
    """An older row without a version means version 1."""
    change = TransactionStateChanged(
        9, "x", 7, 3, 2, 7, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, 5, 6,
        (TopicPartition("t", 0), TopicPartition("t", 1)), ("g",), -1, EPOCH_PER_TRANSACTION,
    )  # fmt: skip
    unusual = TransactionStateChanged._make(
        (9, "x", *[NAMED] * 8, (), (), -1, change.transaction_version)
    )
    row = write(change, unusual)
    assert row == encode(change)
    assert read(row) == change


BATCH = BatchAppended(9, "t", 0, "x", 1, 5, 1, 7, 2, 0, True, 9, 5, 100, 77)
USUAL = encoding.batch(9, "x", 5, eosdb.ProducerIdAndEpoch(7, 2))


@pytest.mark.parametrize(
    ("detail", "error"),
    [
        ("[]", TypeError), ("{", ValueError), ('{"colour":1}', KeyError),
        ('{"partition_id":1,"base_offset":5,"size":100}', TypeError),
        ('{"partition_id":1,"base_offset":5,"size":"100","crc":77}', TypeError),
        ('{"partition_id":1,"base_offset":5,"size":100,"crc":true}', TypeError),
    ],
)  # fmt: skip
def test_a_row_that_is_no_such_event_is_refused(detail: str, error: type[Exception]) -> None:
    good = write(BATCH, USUAL)
    found = read(good)
    assert isinstance(found, Lean)
    assert fill_in(found, USUAL) == BATCH
    with pytest.raises(error):
        found = read((*good[:-1], detail))
        assert isinstance(found, Lean)
        fill_in(found, USUAL)


def written(path: Path, *kinds: str) -> list[Any]:
    return [
        {**detail, "at": f"{topic}/{partition}"} if topic is not None else detail
        for topic, partition, detail in details(path, *kinds)
    ]


CHANGED = "TransactionStateChanged"


def test_a_small_transaction_says_little(db_path: Path) -> None:
    clock = ManualClock(start_ms=1_000)
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="x")
        producer.init_transactions()
        for i in range(2):
            producer.begin_transaction()
            producer.send("t", bytes(100))
            clock.advance(i)
            producer.commit_transaction()
        producer.close()
    rows = details(db_path, CHANGED, "BatchAppended", "MarkerWritten")
    assert [detail.pop("crc") > 0 for _, _, detail in rows if "crc" in detail] == [True, True]
    assert rows[6:] == [
        ("t", 0, {"producer_id": 0, "producer_epoch": 1}),
        ("t", 0, {"partition_id": 1, "base_offset": 2, "age_ms": 1, "size": 100}),
        (None, None, {"to_state": "PrepareCommit"}),
        ("t", 0, {"partition_id": 1, "offset": 3}),
        (None, None, {"to_state": "CompleteCommit"}),
    ]
    assert sum(len(json.dumps(detail)) for _, _, detail in rows[6:]) < 260


def test_changes_name_what_has_joined_and_what_is_unusual(db_path: Path) -> None:
    clock = ManualClock(start_ms=1_000)
    tps = [TopicPartition("t", i) for i in range(3)]
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t", partitions=3)
        broker = db.broker
        broker.init_producer_id("x", 5_000)
        broker.add_partitions_to_txn("x", 0, 0, tps[:2])
        broker.add_partitions_to_txn("x", 0, 0, tps)
        broker.add_offsets_to_txn("x", 0, 0, "g")
        broker.end_txn("x", 0, 0, True, transaction_version=1)
        broker.add_partitions_to_txn("x", 0, 0, tps[:1])
        clock.advance(6_000)
        db.housekeeping()
    two = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    end = {"start_time_ms": 1_000, "timeout_ms": 5_000, "last_producer_epoch": -1}
    fence = {**end, "last_producer_epoch": 0, "previous_producer_id": 0}
    assert written(db_path, CHANGED) == [
        {"to_state": "Empty", "producer_id": 0, "producer_epoch": 0, "timeout_ms": 5_000},
        {"from_state": "Empty", "producer_id": 0, "producer_epoch": 0, "partitions": two},
        {"at": "t/2"},
        {"groups": ["g"]},
        {"to_state": "PrepareCommit", "producer_epoch": 0, "transaction_version": 1, **end},
        {"to_state": "CompleteCommit"},
        {"at": "t/0", "producer_id": 0, "producer_epoch": 0},
        {"to_state": "PrepareAbort", "producer_epoch": 1, "transaction_version": 1, **fence},
        {"to_state": "CompleteAbort"},
    ]


def test_what_joins_is_put_in_order_and_a_change_names_it_alone(db_path: Path) -> None:
    names = "hgfedcba"
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t", partitions=len(names))
        db.broker.init_producer_id("x", 5_000)
        for number, group in enumerate(names, 1):
            db.broker.add_offsets_to_txn("x", 0, 0, group)
            db.broker.add_partitions_to_txn("x", 0, 0, [TopicPartition("t", 8 - number)])
    said = written(db_path, CHANGED)[3:]
    every = whole_events(db_path).values()
    changes = [event for event in every if isinstance(event, TransactionStateChanged)][1:]
    assert said[::2] == [{"groups": [group]} for group in names[1:]]
    assert said[1::2] == [{"at": f"t/{7 - number}"} for number in range(1, 8)]
    for number, event in enumerate(changes, 1):
        assert event.groups == tuple(sorted(names[: (number + 1) // 2]))
        assert event.partitions == tuple(TopicPartition("t", i) for i in range(8 - number // 2, 8))


def live(path: Path) -> None:
    """Everything that happens to transactions and batches."""
    clock = ManualClock(start_ms=1_000)
    with eosdb.connect(path, clock=clock, durability="off") as db:
        db.admin.create_topic("t", partitions=3)
        db.admin.create_topic("u")
        producers = [db.producer(transactional_id=name) for name in "ab"]
        for producer in producers:
            producer.init_transactions()
        for i in range(12):
            producer = producers[i % 2]
            producer.begin_transaction()
            for n in range(i % 4):
                producer.send("t", b"%d" % n, partition=n)
                clock.advance(i % 3)
                if n % 2:
                    producer.flush()
            if i % 5 == 0:
                producer.send_offsets_to_transaction(
                    {TopicPartition("u", 0): OffsetAndMetadata(i)}, "g"
                )
            if i == 7:
                db.admin.delete_topic("u")
                db.admin.create_topic("u")
            producer.send("u", b"v")
            producer.commit_transaction() if i % 3 else producer.abort_transaction()
        producers[0].begin_transaction()
        producers[0].send("t", b"fenced", partition=0)
        producers[0].flush()
        db.admin.fence_producer("a")
        plain = db.producer()
        plain.send("t", b"plain", partition=1)
        plain.flush()
        db.broker.append(TopicPartition("t", 1), RecordBatch([Record(value=b"none")]))
        # A batch whose transactional id is not its producer's.
        who = db.broker.init_producer_id("c", 9_000)
        batch = RecordBatch([Record(value=b"1"), Record(value=b"2")], *who, 0, True)
        db.broker.append(TopicPartition("t", 2), batch, transactional_id="c")
        more = RecordBatch([Record(value=b"3")], *who, 2, True)
        db.broker.append(TopicPartition("t", 2), more, transactional_id="a")
        clock.advance(10_000)
        db.housekeeping()
        # An abort of what never began.
        who = db.broker.init_producer_id("d", 9_000)
        db.broker.end_txn("d", *who, False)


def test_views_and_folds_agree_whatever_has_been_left_out(db_path: Path) -> None:
    live(db_path)
    check_views(db_path)
    events = whole_events(db_path)
    assert {type(event) for event in events.values()} >= {BatchAppended, MarkerWritten}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_older_rows_that_say_everything_go_on_with_newer_ones(
    db_path: Path, tmp_path: Path, share: float
) -> None:
    live(db_path)
    events = whole_events(db_path)
    older = tmp_path / "older.db"
    shutil.copy(db_path, older)
    say_everything(older, int(share * len(events)))
    assert whole_events(older) == events
    check_views(older)
    with eosdb.connect(older, read_only=True) as db:
        assert db.verify().ok


@pytest.mark.slow
def test_what_is_left_of_a_history_means_the_same_wherever_it_ends(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline says what the deleted events said, also in the midst of a transaction; of older batches
    the records say who wrote them."""
    live(db_path)
    events = whole_events(db_path)
    monkeypatch.setattr(housekeeping, "EVENTS_PER_UNIT", 3)
    config = eosdb.BrokerConfig(history_retention_ms=0)
    keeps = eosdb.BrokerConfig(history_retention_ms=-1, history_retention_bytes=-1)
    with eosdb.connect(db_path, durability="off", config=keeps) as db:
        dumped = [[*db.admin.dump_log(TopicPartition("t", i))] for i in range(3)]
        while db._store.write(lambda unit: housekeeping.advance(unit, config, 10**6)):
            check_views(db_path, events)
            report = db.verify()
            assert report.ok, report.problems
        (left,) = next(db.query("SELECT count(*) FROM transaction_history").rows)
        assert left <= 1
        for i, batches in enumerate(dumped):
            found = [*db.admin.dump_log(TopicPartition("t", i))]
            # Only which coordinator wrote a marker is not known any more.
            assert found == [replace(batch, coordinator_epoch=-1) for batch in batches]
