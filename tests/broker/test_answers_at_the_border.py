"""Answers where a request is just within a limit, or comes once more under other conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.errors import (
    InvalidTransactionTimeoutError,
    MessageTooLargeError,
    OffsetMetadataTooLargeError,
    PolicyViolationError,
)

TP = TopicPartition("t", 0)
V = [Record(value=b"v")]


@pytest.mark.parametrize(("text", "fits"), [("x" * 10, True), ("x" * 11, False), ("ü" * 6, False)])
def test_metadata_of_an_offset_are_measured_in_bytes(db_path: Path, text: str, fits: bool) -> None:
    config = BrokerConfig(offset_metadata_max_bytes=10)
    with eosdb.connect(db_path, durability="off", config=config) as db:
        db.admin.create_topic("t")
        offsets = {TP: OffsetAndMetadata(0, text)}
        if fits:
            db.broker.offset_commit("g", offsets)
            assert db.broker.offset_fetch("g") == offsets
            return
        with pytest.raises(OffsetMetadataTooLargeError):
            db.broker.offset_commit("g", offsets)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_repeat_is_answered_with_the_time_that_the_topic_gives(
    db: eosdb.Database, clock: ManualClock, timestamp_type: str
) -> None:
    db.admin.create_topic("t", config={"message.timestamp.type": timestamp_type})
    batch = RecordBatch(V, *db.broker.init_producer_id(), 0)
    first = db.broker.append(TP, batch)
    again = db.broker.append(TP, batch)
    assert again.duplicate
    expected = -1 if timestamp_type == "CreateTime" else clock.time_ms()
    assert first.log_append_time == again.log_append_time == expected


def test_a_topic_that_has_moved_away_still_answers_a_repeat(db: eosdb.Database) -> None:
    """The producer must learn that its last batch is stored, and take nothing along that is."""
    db.admin.create_topic("t")
    who = db.broker.init_producer_id()
    first = db.broker.append(TP, RecordBatch(V, *who, 0))
    db.admin.alter_topic_config("t", {"eosdb.moved.to": "elsewhere"})
    again = db.broker.append(TP, RecordBatch(V, *who, 0))
    assert (again.duplicate, again.base_offset) == (True, first.base_offset)
    with pytest.raises(PolicyViolationError, match="elsewhere"):
        db.broker.append(TP, RecordBatch(V, *who, 1))


@pytest.mark.parametrize(("size", "fits"), [(0, True), (1, False)])
def test_a_batch_may_have_max_message_bytes(db: eosdb.Database, size: int, fits: bool) -> None:
    db.admin.create_topic("t", config={"max.message.bytes": 1_000})
    batch = RecordBatch(V, sent_bytes=1_000 + size)
    if fits:
        db.broker.append(TP, batch)
        return
    with pytest.raises(MessageTooLargeError):
        db.broker.append(TP, batch)


@pytest.mark.parametrize(
    ("timeout_ms", "fits"), [(0, False), (1, True), (5_000, True), (5_001, False)]
)
def test_a_transaction_time_out_is_from_1_ms_to_the_maximum(
    db_path: Path, timeout_ms: int, fits: bool
) -> None:
    config = BrokerConfig(transaction_max_timeout_ms=5_000)
    with eosdb.connect(db_path, durability="off", config=config) as db:
        if fits:
            db.broker.init_producer_id("p", transaction_timeout_ms=timeout_ms)
            return
        with pytest.raises(InvalidTransactionTimeoutError):
            db.broker.init_producer_id("p", transaction_timeout_ms=timeout_ms)
