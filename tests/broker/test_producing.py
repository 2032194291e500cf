"""What a partition accepts from a producer, at the request level."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import (
    ManualClock,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)
from tests.requests import TP, Send, begin

TOP = 2**31 - 1


def test_a_repeat_after_the_state_expired_is_still_known(
    classic_db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = classic_db.broker.init_producer_id()
    send(b"a", b"b", who=who, sequence=0)
    clock.advance(86_400_000)
    classic_db.housekeeping()
    assert classic_db.broker.describe_producers(TP) == []
    assert send(b"a", b"b", who=who, sequence=0).duplicate
    for sequence, values in ((0, [b"a"]), (1, [b"b", b"c"]), (1, [b"b"])):
        with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
            send(*values, who=who, sequence=sequence)
    assert send(b"c", who=who, sequence=2).base_offset == 2


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


def test_sequences_wrap_while_the_rows_of_the_round_before_are_there(
    classic_db: eosdb.Database, send: Send
) -> None:
    who = classic_db.broker.init_producer_id()
    send(b"old 0", b"old 1", who=who, sequence=0)
    classic_db.broker.write_txn_markers(who.producer_id, 1, True, [TP], 0)
    newer = ProducerIdAndEpoch(who.producer_id, 1)
    send(b"first", who=newer, sequence=0)
    other = classic_db.broker.init_producer_id()
    send(b"a", b"b", who=other, sequence=TOP - 1)
    send(b"c", b"d", who=other, sequence=0)
    assert send(b"a", b"b", who=other, sequence=TOP - 1).base_offset == 4
    assert send(b"c", b"d", who=other, sequence=0).base_offset == 6
    assert send(b"e", who=other, sequence=2).base_offset == 8
    assert classic_db.verify().ok


def test_a_single_record_below_everything_remembered_is_a_repeat(
    classic_db: eosdb.Database, send: Send
) -> None:
    who = classic_db.broker.init_producer_id()
    for i in range(8):
        send(b"v", who=who, sequence=i)
    repeated = send(b"v", who=who, sequence=1)
    assert (repeated.duplicate, repeated.base_offset, repeated.last_offset) == (True, 1, 1)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        send(b"v", b"w", who=who, sequence=1)
    classic_db.broker.delete_records(TP, 8)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        send(b"v", who=who, sequence=1)
    assert send(b"v", who=who, sequence=4).base_offset == 4, "one of the five, though it is gone"


@pytest.mark.parametrize("expired", [False, True], ids=["new", "expired in between"])
def test_what_was_never_stored_is_never_called_a_duplicate(
    classic_db: eosdb.Database, clock: eosdb.ManualClock, send: Send, expired: bool
) -> None:
    """The second batch of a producer comes first, and is taken for its first one (KIP-360)."""
    who = classic_db.broker.init_producer_id()
    if expired:
        send(b"long ago", who=who, sequence=0)
        classic_db.broker.delete_records(TP, 1)
        clock.advance(2 * classic_db.config.producer_id_expiration_ms)
        assert classic_db.housekeeping()
    send(b"5", b"6", who=who, sequence=5)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError, match="expected 7"):
        send(b"0", b"1", b"2", b"3", b"4", who=who, sequence=0)
    assert [record.value for record in classic_db.broker.fetch(TP, 0 + expired).records] == [
        b"5",
        b"6",
    ]


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
