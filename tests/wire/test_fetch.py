"""Fetch: what a reader is sent, where it goes on, and how long it waits."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest

import eosdb
from eosdb import TopicPartition
from eosdb.wire.handlers import k01_fetch as fetch_handler
from tests.requests import begin
from tests.wire.peer import Peer, asking, fetch, fetched, part_of, split

_LONG_MS = 100_000
"""Much longer than the test takes."""
T0 = TopicPartition("t", 0)


def put(db: eosdb.Database, *values: bytes, partition: int = 0) -> None:
    with db.producer() as producer:
        for value in values:
            producer.send("t", value, partition=partition)


def transaction(db: eosdb.Database, *values: bytes, commit: bool = True) -> None:
    producer = db.producer(transactional_id="library")
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send("t", value, partition=0)
    producer.flush()
    (producer.commit_transaction if commit else producer.abort_transaction)()


@pytest.mark.slow
@pytest.mark.parametrize("version", range(4, 13))
def test_records_are_fetched_by_every_version(peer: Peer, db: eosdb.Database, version: int) -> None:
    put(db, b"a", b"b")
    answer = peer.ask(fetch(0), version)
    assert fetched(answer) == [(0, b"a"), (1, b"b")]
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert fetched(peer.ask(fetch(1), version)) == [(1, b"b")]


def test_a_long_poll_is_answered_by_a_commit_of_the_library(peer: Peer, db: eosdb.Database) -> None:
    asked = fetch(0, wait_ms=_LONG_MS)
    peer.send(asked, 12)
    put(db, b"elsewhere", partition=1)
    put(db, b"here")
    assert fetched(peer.answer(asked, 12)) == [(0, b"here")]


def test_a_long_poll_is_answered_by_a_commit_of_another_process(
    peer: Peer, db_path: Path, clock: eosdb.ManualClock
) -> None:
    asked = fetch(0, wait_ms=_LONG_MS)
    peer.send(asked, 12)
    with eosdb.connect(db_path, clock=clock) as other:
        put(other, b"here")
    assert fetched(peer.answer(asked, 12)) == [(0, b"here")]


def test_a_long_poll_of_what_is_committed_is_answered_by_the_end_of_a_transaction(
    peer: Peer, db: eosdb.Database
) -> None:
    producer = db.producer(transactional_id="library")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"a", partition=0)
    producer.flush()
    asked = fetch(0, wait_ms=_LONG_MS)
    peer.send(asked, 12)
    producer.commit_transaction()
    assert fetched(peer.answer(asked, 12)) == [(0, b"a")]


def test_a_dead_producers_transaction_ends_at_its_time_out_while_everybody_only_reads(
    peer: Peer, db: eosdb.Database, clock: eosdb.ManualClock
) -> None:
    who = begin(db, timeout_ms=10_000)
    record = eosdb.RecordBatch([eosdb.Record(value=b"open")], *who, 0, True)
    db.broker.append(T0, record, transactional_id="a")
    put(db, b"held")
    asked = fetch(0, wait_ms=_LONG_MS)
    peer.send(asked, 12)
    clock.advance(10_001)
    assert fetched(peer.answer(asked, 12)) == [(1, b"held")]


def test_a_reader_that_asks_for_more_bytes_waits_for_them(peer: Peer, db: eosdb.Database) -> None:
    put(db, b"a")
    asked = fetch(0, wait_ms=_LONG_MS, min_bytes=2_000)
    peer.send(asked, 12)
    put(db, b"b" * 3_000)
    assert [offset for offset, _ in fetched(peer.answer(asked, 12))] == [0, 1]


def test_a_long_poll_ends_at_its_time(peer: Peer) -> None:
    assert not peer.ask(fetch(0, wait_ms=30), 12).responses[0].partitions[0].records


def test_an_error_is_answered_at_once(peer: Peer) -> None:
    def code(asked: object) -> int:
        part = peer.ask(asked, 12).responses[0].partitions[0]  # type: ignore[arg-type]
        return int(part.error_code)

    assert code(fetch(7, wait_ms=_LONG_MS)) == 1
    assert code(fetch(0, topic="gone", wait_ms=_LONG_MS)) == 3
    wrong_leader = fetch(0, wait_ms=_LONG_MS)
    wrong_leader.topics[0].partitions[0].current_leader_epoch = 3
    assert code(wrong_leader) == 75


def test_a_topic_that_is_deleted_ends_the_long_poll(peer: Peer, db: eosdb.Database) -> None:
    asked = fetch(0, wait_ms=_LONG_MS)
    peer.send(asked, 12)
    db.admin.delete_topic("t")
    assert peer.answer(asked, 12).responses[0].partitions[0].error_code == 3


def test_an_answer_keeps_to_its_size_but_has_one_record(peer: Peer, db: eosdb.Database) -> None:
    put(db, b"a" * 500, b"b" * 500, b"c" * 500)
    assert [o for o, _ in fetched(peer.ask(fetch(0, max_bytes=1_100), 12))] == [0, 1]
    assert [o for o, _ in fetched(peer.ask(fetch(0, max_bytes=1), 12))] == [0]


def test_every_batch_claims_its_own_offsets_alone(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that knows the first batch alone goes on behind it, and misses nothing."""
    monkeypatch.setattr(fetch_handler, "_STEP", 4)
    for i in range(3):
        put(db, *(b"%d-%d" % (i, j) for j in range(3)))
        transaction(db, b"%d" % i)
    batches = [
        DefaultRecordBatch(one) for one in split(bytes(part_of(peer.ask(fetch(0), 12)).records))
    ]
    ends = [one.next_offset for one in batches]
    assert len(batches) >= 6
    assert [one.base_offset for one in batches] == [0, *ends[:-1]]
    assert ends[-1] == db.broker.offsets(T0).log_end_offset
    for one in batches:
        assert [record.offset for record in one] == list(range(one.base_offset, one.next_offset))


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8])
def test_an_answer_names_the_aborted_transactions_of_all_the_steps_it_was_read_in(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A client hides what it is told was aborted, and nothing else."""
    monkeypatch.setattr(fetch_handler, "_STEP", step)
    for i in range(6):
        transaction(db, *(b"aborted %d" % j for j in range(i)), commit=False)
        put(db, *(b"%d-%d" % (i, j) for j in range(3)))
    values = [value for _, value in fetched(peer.ask(fetch(0), 12))]
    assert values == [b"%d-%d" % (i, j) for i in range(6) for j in range(3)]


def test_a_damaged_record_ends_what_is_read_before_it_and_is_then_named(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_handler, "_STEP", 2)
    put(db, b"a", b"b", b"c")
    with contextlib.closing(sqlite3.connect(db.path)) as hand:
        hand.execute("PRAGMA writable_schema = ON")
        for (trigger,) in hand.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
            hand.execute(f"DROP TRIGGER {trigger}")
        hand.execute("UPDATE records SET value = x'00' WHERE \"offset\" = 2")
        hand.commit()
    assert fetched(peer.ask(fetch(0), 12)) == [(0, b"a"), (1, b"b")]
    assert peer.ask(fetch(2), 12).responses[0].partitions[0].error_code == 2


def test_keys_headers_and_times_arrive(peer: Peer, db: eosdb.Database) -> None:
    from aiokafka.record.default_records import DefaultRecordBatch

    db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    with db.producer() as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("n", None)], partition=0)
        producer.send("t", None, key=b"k", partition=0)
    (found,) = split(bytes(peer.ask(fetch(0), 12).responses[0].partitions[0].records))
    batch = DefaultRecordBatch(found)
    assert batch.timestamp_type == 1
    assert [(r.key, r.value, r.headers, r.timestamp) for r in batch] == [
        (b"k", b"v", [("h", b"1"), ("n", None)], db.clock.time_ms()),
        (b"k", None, [], db.clock.time_ms()),
    ]


def test_the_end_of_the_server_ends_a_long_poll(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    server = db.serve()
    with Peer(server) as peer:
        asked = fetch(0, wait_ms=_LONG_MS)
        peer.send(asked, 12)
        closing = threading.Thread(target=server.close)
        closing.start()
        with contextlib.suppress(ConnectionError):  # If it had not been read yet.
            assert not peer.answer(asked, 12).responses[0].partitions[0].records
        closing.join()


def list_offsets(
    timestamp: int, *, committed: bool = False, topic: str = "t"
) -> ListOffsetsRequest:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return asking(
        ListOffsetsRequest,
        replica_id=-1,
        isolation_level=int(committed),
        topics=[{"name": topic, "partitions": [partition]}],
    )


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_listed_by_every_version(peer: Peer, db: eosdb.Database, version: int) -> None:
    put(db, b"a", b"b")
    begin(db)

    def offset(timestamp: int) -> int:
        answer = peer.ask(list_offsets(timestamp), version)
        part = answer.topics[0].partitions[0]
        assert part.error_code == 0
        return int(part.offset)

    assert [offset(-2), offset(-1)] == [0, 2]
    assert offset(db.clock.time_ms()) == 0
    assert offset(db.clock.time_ms() + 1) == -1


def test_offsets_of_no_topic_have_an_error(peer: Peer) -> None:
    answer = peer.ask(list_offsets(-1, topic="gone"), 8)
    assert answer.topics[0].partitions[0].error_code == 3


@pytest.mark.parametrize("version", range(2, 5))
def test_the_only_epoch_of_the_leader_ends_with_the_log(
    peer: Peer, db: eosdb.Database, version: int
) -> None:
    put(db, b"a", b"b")

    def end(epoch: int) -> tuple[int, int]:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        request = asking(
            OffsetForLeaderEpochRequest,
            replica_id=-1,
            topics=[{"topic": "t", "partitions": [partition]}],
        )
        found = peer.ask(request, version).topics[0].partitions[0]
        assert found.error_code == 0
        return found.leader_epoch, found.end_offset

    assert end(0) == (0, 2)
    assert end(5) == (-1, -1)
