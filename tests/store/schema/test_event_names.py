"""The views show by name what the events say, each event alone."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.events.encoding import SHAPES, encode
from eosdb.events.kinds import Event
from eosdb.maintenance import history
from eosdb.store.schema.event_names import JOURNAL, member
from tests.events.test_encoding import any_event
from tests.store.schema.stored_events import check_views, details, events_of, named

CHANGED = "TransactionStateChanged"
COLUMNS = "position, kind, timestamp, topic, partition, transactional_id, detail"


def in_sqlite(value: Any) -> Any:
    """The value, as far as SQLite's JSON can show it: numbers of 64 bits, texts without NUL."""
    if type(value) is int:
        return max(-(2**63), min(value, 2**63 - 1))
    if type(value) is str:
        return value.replace("\0", "0")
    if isinstance(value, dict):
        return {in_sqlite(name): in_sqlite(of) for name, of in value.items()}
    if isinstance(value, frozenset):
        return frozenset(map(in_sqlite, value))
    if not isinstance(value, tuple):
        return value
    parts = map(in_sqlite, value)
    return value._make(parts) if hasattr(value, "_make") else tuple(parts)


@pytest.mark.slow
@given(any_event)
def test_an_event_is_shown_by_name(event: Event) -> None:
    event = in_sqlite(event)
    names = SHAPES[type(event).__name__][0].names
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE eosdb_journal ({COLUMNS})")
        connection.execute(JOURNAL)
        connection.execute("INSERT INTO eosdb_journal VALUES (1, ?, ?, ?, ?, ?, ?)", encode(event))
        ((detail,),) = connection.execute("SELECT detail FROM journal")
        members = ", ".join(member(type(event), name) for name in names)
        (values,) = connection.execute(f"SELECT {members} FROM eosdb_journal")
    shown = named(event)
    assert json.loads(detail) == {name: shown[name] for name in names}
    for name, value in zip(names, values, strict=True):
        if not isinstance(shown[name], list | dict) and type(shown[name]) is type(value):
            assert value == shown[name]


def test_a_small_transaction_says_everything_and_is_small(db_path: Path) -> None:
    clock = ManualClock(start_ms=1_000_000_000_000)
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="x")
        producer.init_transactions()
        for _ in range(2):
            with producer.transaction():
                producer.send("t", bytes(100))
        producer.close()
    with closing(sqlite3.connect(db_path)) as connection:
        texts = [text for (text,) in connection.execute(
            "SELECT detail FROM eosdb_journal WHERE transactional_id = 'x' ORDER BY position"
        )]  # fmt: skip
    begun, batch, *ended = texts[6:]
    assert begun == '[0,1,0,0,4,1,60000,1000000000000,[["t",0]],[]]'
    assert batch.startswith("[1,2,1,0,1,0,true,1000000000000,2,100,")
    assert ended == [
        '[0,2,1,0,1,2,60000,1000000000000,[["t",0]],[],2]',
        '[1,3,0,2,1,"COMMIT"]',
        "[0,2,1,0,2,4,60000,1000000000000,[],[],2]",
    ]


def test_a_change_names_all_that_is_in_the_transaction_in_order(db_path: Path) -> None:
    names = "hgfedcba"
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t", partitions=len(names))
        db.broker.init_producer_id("x", 5_000)
        for number, group in enumerate(names, 1):
            db.broker.add_offsets_to_txn("x", 0, 0, group)
            db.broker.add_partitions_to_txn("x", 0, 0, [TopicPartition("t", 8 - number)])
        db.broker.end_txn("x", 0, 0, True)
    *changes, prepared, _ = details(db_path, CHANGED)[1:]
    for number, change in enumerate((*changes, prepared), 1):
        assert change["groups"] == sorted(names[: (number + 1) // 2])
        partitions = [tp["partition"] for tp in change["partitions"]]
        assert partitions == [*range(8 - min(number // 2, 8), 8)]
    assert prepared["to_state"] == "PrepareCommit"


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


def test_the_views_show_what_the_events_say(db_path: Path) -> None:
    live(db_path)
    check_views(db_path, events_of(db_path))


@pytest.mark.slow
def test_what_is_left_of_a_history_means_the_same_wherever_it_ends(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(db_path)
    monkeypatch.setattr(history, "EVENTS_PER_UNIT", 3)
    config = eosdb.BrokerConfig(history_retention_ms=0)
    keeps = eosdb.BrokerConfig(history_retention_ms=-1, history_retention_bytes=-1)
    with eosdb.connect(db_path, durability="off", config=keeps) as db:
        events = events_of(db_path)
        dumped = [[*db.admin.dump_log(TopicPartition("t", i))] for i in range(3)]
        while db._store.write(lambda unit: history.advance(unit, config, 10**6)):
            check_views(db_path, events)
            report = db.verify()
            assert report.ok, report.problems
        (left,) = next(db.query("SELECT count(*) FROM transaction_history").rows)
        assert left <= 1
        assert dumped == [[*db.admin.dump_log(TopicPartition("t", i))] for i in range(3)]
