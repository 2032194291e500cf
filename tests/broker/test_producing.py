"""What a partition accepts from a producer, at the request level."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import (
    ManualClock,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.broker import produce
from eosdb.log import batch as batch_module
from eosdb.log.batch import PreparedBatch
from eosdb.log.producer_state import sequence_of
from tests.log.producer_batches import EPOCH, PRODUCER_ID
from tests.log.sequences import CASES, FIRST, Past
from tests.requests import TP, Send, begin

PASTS = {case.past: [each for each in CASES if each.past == case.past] for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("past", PASTS, ids=lambda past: f"before {PASTS[past][0].name}")
def test_a_partition_answers_as_the_table_of_sequences(
    db: eosdb.Database, clock: ManualClock, past: Past
) -> None:
    """Each case in a partition of its own: what was sent, deleted and forgotten is in the file."""
    tps = [TopicPartition("t", i) for i, _ in enumerate(PASTS[past])]
    db.admin.create_topic("t", partitions=len(tps))

    def send(tp: TopicPartition, epoch: int, sequence: int, count: int) -> str:
        values = [Record(value=b"v")] * count
        try:
            stored = db.broker.append(tp, RecordBatch(values, PRODUCER_ID, epoch, sequence))
        except eosdb.ApiError as error:
            return error.name
        return f"stored at {stored.base_offset} to {stored.last_offset}" * stored.duplicate

    for tp in tps:
        db.broker.append(tp, RecordBatch([Record(value=b"before")] * FIRST))
        for row in past.batches:
            assert send(tp, EPOCH, sequence_of(row.base_serial), row.count) == ""
        if past.deleted:
            end = FIRST + sum(row.count for row in past.batches)
            db.broker.delete_records(tp, past.rows[0].base_offset if past.rows else end)
    if past.is_expired:
        clock.advance(db.config.producer_id_expiration_ms)
        assert db.housekeeping()
    if past.has_marker:
        db.broker.write_txn_markers(PRODUCER_ID, EPOCH, True, tps, 0, transaction_version=1)
    for tp, case in zip(tps, PASTS[past], strict=True):
        asked = case.incoming
        told = send(tp, asked.producer_epoch, asked.base_sequence, asked.count)
        assert told == ("" if case.answer.startswith("new") else case.answer), case.name
    assert db.verify().ok


def test_a_write_finds_the_expired_producer_by_itself(
    classic_db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = classic_db.broker.init_producer_id()
    send(b"a", who=who, sequence=0)
    clock.advance(86_399_999)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        send(b"x", who=who, sequence=9)
    clock.advance(1)
    assert send(b"x", who=who, sequence=9).base_offset == 1


def test_old_record_timestamps_do_not_expire_a_producer(
    classic_db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = classic_db.broker.init_producer_id()
    send(b"a", who=who, sequence=0, timestamp=5)
    clock.advance(1_000)
    classic_db.housekeeping()
    (known,) = classic_db.broker.describe_producers(TP)
    assert (known.last_timestamp, known.last_sequence) == (5, 0)


def test_a_transactional_append_is_verified_before_repeats_are_looked_for(
    classic_db: eosdb.Database, send: Send
) -> None:
    who = begin(classic_db)
    send(b"v", who=who, sequence=0, transactional_id="a")
    assert send(b"v", who=who, sequence=0, transactional_id="a").duplicate
    classic_db.broker.end_txn("a", *who, True)
    with pytest.raises(eosdb.InvalidTxnStateError):
        send(b"v", who=who, sequence=0, transactional_id="a")
    classic_db.broker.add_partitions_to_txn("a", *who, [TP])
    assert send(b"v", who=who, sequence=0, transactional_id="a").duplicate


REPEAT = Record(b"k", b"131", (("h", b"1"), ("n", None)), timestamp=7)
OTHERS = {
    "value": REPEAT._replace(value=b"212"),  # Its Adler-32 is the same.
    "no value": REPEAT._replace(value=None),
    "key": REPEAT._replace(key=b"l"),
    "a header's value": REPEAT._replace(headers=(("h", b"2"), ("n", None))),
    "a header is empty": REPEAT._replace(headers=(("h", b"1"), ("n", b""))),
    "no headers": REPEAT._replace(headers=()),
}


@pytest.mark.parametrize("later", [0, 4, 9])
@pytest.mark.parametrize("waits", [False, True])
def test_a_repeat_is_the_same_record_and_another_one_is_out_of_order(
    db: eosdb.Database, later: int, waits: bool
) -> None:
    """While the batch is retained, and when only its rows tell; also a record that waits for its time."""
    for topic in "tu":
        db.admin.create_topic(topic)
    who, tp = db.broker.init_producer_id(), TopicPartition("t", -1 if waits else 0)

    def append(record: Record, sequence: int = 0) -> dict[TopicPartition, eosdb.ProduceResult]:
        both = [record, REPEAT._replace(headers=())]
        batches = {tp: RecordBatch(both, *who, sequence, is_scheduled=waits)}
        return db.broker.produce(batches | {TopicPartition("u", 0): RecordBatch([REPEAT])})

    stored = append(REPEAT)[tp]
    for i in range(later):
        append(REPEAT, 2 * (i + 1))
    for what, other in OTHERS.items():
        refused, stays = append(other).values()
        assert isinstance(refused.error, eosdb.OutOfOrderSequenceNumberError), what
        assert stays.error is None
        assert not stays.duplicate
    assert append(REPEAT)[tp] == stored._replace(duplicate=True)
    again = append(REPEAT._replace(timestamp=8))[tp]  # kafkajs gives each attempt a new one.
    assert again == stored._replace(duplicate=True)


def test_a_repeat_of_removed_records_is_compared_by_its_checksum(db: eosdb.Database) -> None:
    db.admin.create_topic("c", config={"cleanup.policy": "compact,delete"})
    who, tp = db.broker.init_producer_id(), TopicPartition("c", 0)

    def append(*values: bytes, sequence: int = 0) -> eosdb.ProduceResult:
        records = [Record(value[:1], value) for value in values]
        return db.broker.append(tp, RecordBatch(records, *who, sequence))

    append(b"a1", b"b1")
    append(b"a2", sequence=2)
    db.housekeeping()
    assert [it.value for it in db.broker.fetch(tp, 0).records] == [b"b1", b"a2"]
    for removed in (False, True):
        if removed:
            db.broker.delete_records(tp, -1)
        assert append(b"a1", b"b1").duplicate
        for others in ((b"a9", b"b1"), (b"a1", b"b9")):
            with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
                append(*others)


def test_a_client_that_goes_back_after_an_abort_loses_nothing(
    classic_db: eosdb.Database, send: Send
) -> None:
    """As librdkafka and kafkajs do without an answer. In Kafka the next record counts as stored."""
    who = begin(classic_db)

    def tell(value: bytes, sequence: int, timestamp: int = 5) -> eosdb.ProduceResult:
        return send(value, who=who, sequence=sequence, transactional_id="a", timestamp=timestamp)

    def end(committed: bool) -> None:
        classic_db.broker.end_txn("a", *who, committed)
        classic_db.broker.add_partitions_to_txn("a", *who, [TP])

    tell(b"first", 0)
    end(True)
    for turn in range(3):
        tell(b"aborted %d" % turn, 1 + turn)
        tell(b"aborted, too", 2 + turn)
        if turn == 1:
            classic_db.broker.delete_records(TP, -1)
        end(False)
        with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
            tell(b"aborted %d" % turn, 1 + turn)  # A late repeat.
        stored = tell(b"kept %d" % turn if turn else b"aborted 0", 1 + turn, 6)
        assert not stored.duplicate
        assert tell(b"kept %d" % turn if turn else b"aborted 0", 1 + turn, 7).duplicate
        end(True)
    found = classic_db.query('SELECT value FROM committed_records ORDER BY "offset"').all()
    assert [value for (value,) in found] == [b"kept 1", b"kept 2"]
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        tell(b"other", 3)  # Its predecessor is committed.
    assert classic_db.verify().ok


def test_the_answer_to_a_repeat_has_the_stored_append_time(
    classic_db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    db, who = classic_db, classic_db.broker.init_producer_id()
    db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    stored = send(b"v", who=who, sequence=0)
    clock.advance(5)
    assert send(b"v", who=who, sequence=0) == stored._replace(duplicate=True)
    assert stored.log_append_time == clock.time_ms() - 5
    db.admin.alter_topic_config("t", {"message.timestamp.type": "CreateTime"})
    assert send(b"v", who=who, sequence=0).log_append_time == stored.log_append_time


def test_one_request_carries_one_transactional_producer(classic_db: eosdb.Database) -> None:
    classic_db.admin.create_topic("u")
    a, b = begin(classic_db, "a"), classic_db.broker.init_producer_id("b")
    batches = {
        TP: RecordBatch([Record()], *a, 0, True),
        TopicPartition("u", 0): RecordBatch([Record()], *b, 0, True),
    }
    errors = {
        r.error.name
        for r in classic_db.broker.produce(batches, transactional_id="a").values()
        if r.error
    }
    assert errors == {"INVALID_PRODUCER_ID_MAPPING"}


def test_batches_are_checked_and_encoded_before_any_lock(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    leads: list[bool] = []

    def prepare(batch: object, now_ms: int) -> PreparedBatch:
        leads.append(db._store._group._lead._is_owned())  # type: ignore[attr-defined]
        return original(batch, now_ms)

    original = batch_module.prepare
    monkeypatch.setattr(produce, "prepare", prepare)
    db.producer().send("t", b"alone")
    with db.producer(transactional_id="x") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"in a turn")
    assert leads == [False, False]
