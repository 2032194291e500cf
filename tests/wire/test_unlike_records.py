"""Which neighbours come as one record batch: those that its header describes alike, in C as in Python.

What clients decode is compared with the stored records, so that both cannot be wrong together.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka.record.memory_records import MemoryRecords

import eosdb
from eosdb import ManualClock, Record, RecordBatch
from eosdb.log.reading import block
from tests.wire.test_batches_by_the_accelerator import TP, encoded

Write = Callable[[eosdb.Database, ManualClock], int]
"""Writes records, and returns how many batches a client gets."""
V = [Record(value=b"v")]


def log_append_time(db: eosdb.Database) -> None:
    db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})


def several_append_times(db: eosdb.Database, clock: ManualClock) -> int:
    log_append_time(db)
    for _ in range(3):
        db.broker.append(TP, RecordBatch(V * 2))
        clock.advance(1)
    return 3


def one_append_time(db: eosdb.Database, clock: ManualClock) -> int:
    log_append_time(db)
    db.broker.append(TP, RecordBatch(V * 2))
    db.broker.append(TP, RecordBatch(V * 2))
    return 1


def both_types(db: eosdb.Database, clock: ManualClock) -> int:
    db.broker.append(TP, RecordBatch(V))
    log_append_time(db)
    db.broker.append(TP, RecordBatch(V))
    return 2


def two_epochs(db: eosdb.Database, clock: ManualClock) -> int:
    id_, epoch = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch(V, id_, epoch, 0))
    db.broker.append(TP, RecordBatch(V, id_, epoch + 1, 0))
    return 2


def others_in_between(db: eosdb.Database, clock: ManualClock) -> int:
    """The sequences of the first producer go on behind a record of another."""
    one, other = db.broker.init_producer_id(), db.broker.init_producer_id()
    for who, sequence in ((one, 0), (other, 0), (one, 1)):
        db.broker.append(TP, RecordBatch(V, *who, sequence))
    return 3


def a_first_sequence_that_is_not_the_next(db: eosdb.Database, clock: ManualClock) -> int:
    """A producer that has expired may begin anywhere."""
    who = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch(V, *who, 0))
    clock.advance(db.config.producer_id_expiration_ms)
    db.housekeeping()
    db.broker.append(TP, RecordBatch(V, *who, 7))
    return 2


def two_markers(db: eosdb.Database, clock: ManualClock) -> int:
    """The second transaction has its records elsewhere, so that its marker follows the first one's."""
    id_, epoch = db.broker.init_producer_id("p", transaction_timeout_ms=1_000)
    db.broker.append(TP, RecordBatch(V, id_, epoch, 0, True), transactional_id="p")
    for committed in (True, False):
        db.broker.write_txn_markers(id_, epoch + 1, committed, [TP], 0, transaction_version=2)
        epoch += 1
    return 3


def two_markers_of_one_epoch(db: eosdb.Database, clock: ManualClock) -> int:
    """As version 1 writes them: nothing but their offsets tells them apart."""
    id_, epoch = db.broker.init_producer_id("p", transaction_timeout_ms=1_000)
    db.broker.append(TP, RecordBatch(V, id_, epoch, 0, True), transactional_id="p")
    for committed in (True, True, False):
        db.broker.write_txn_markers(id_, epoch, committed, [TP], 0, transaction_version=1)
    return 4


def times_a_word_apart(db: eosdb.Database, clock: ManualClock) -> int:
    """Their difference has no bit in the lower 32."""
    times = [10**12, 10**12 + 2**32, 10**12 - 2**32, 10**12 + 2**31]
    db.broker.append(TP, RecordBatch([Record(value=b"v", timestamp=time) for time in times]))
    return 1


def the_newest_in_the_middle(db: eosdb.Database, clock: ManualClock) -> int:
    db.broker.append(TP, RecordBatch([Record(value=b"v", timestamp=time) for time in (5, 9, 7)]))
    return 1


@pytest.mark.parametrize(
    "write",
    [
        several_append_times, one_append_time, both_types, two_epochs,
        others_in_between, a_first_sequence_that_is_not_the_next,
        two_markers, two_markers_of_one_epoch, times_a_word_apart, the_newest_in_the_middle,
    ],
)  # fmt: skip
def test_a_client_decodes_what_is_stored(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    config = {"retention.ms": -1, "message.timestamp.after.max.ms": 2**62}
    db.admin.create_topic("t", config=config)
    count = write(db, clock)
    stored = db.broker.fetch(TP, 0).records
    in_python = encoded(db, 0, setting="0")
    monkeypatch.setattr(block, "_by_row", None)  # What C leaves to Python fails.
    assert encoded(db, 0) == in_python
    batches, read = [], []
    records = MemoryRecords(in_python[0])
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        batches.append(batch)
        found = list(batch)
        assert batch.max_timestamp == max(record.timestamp for record in found)
        for at, record in enumerate(found):
            sequence = -1 if batch.base_sequence < 0 else batch.base_sequence + at
            read.append((
                record.offset, record.timestamp, record.timestamp_type, batch.producer_id,
                batch.producer_epoch, sequence, batch.is_control_batch,
            ))  # fmt: skip
    assert read == [
        (
            r.offset, r.timestamp, int(r.timestamp_type), r.producer_id, r.producer_epoch,
            r.sequence, r.control is not None,
        )
        for r in stored
    ]  # fmt: skip
    assert len(batches) == count
