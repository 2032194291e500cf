"""The assertions of the log: each is seen to fail, by a value that eosdb's own code never passes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eosdb import Record, RecordBatch, TopicPartition
from eosdb.events.kinds import BatchAppended
from eosdb.log import (
    append,
    attempts,
    batch,
    once,
    partition_rows,
    producer_rows,
    producer_state,
    retention,
    scheduled,
    topics,
)
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import Duplicate, LookBehind, StoredRange
from eosdb.log.reading import block, by_time, row_check
from eosdb.log.reading.block import ReadLimits
from eosdb.model.config import BrokerConfig
from eosdb.model.fetched import StoredRows, Want
from eosdb.model.topic_config import TopicConfig
from eosdb.model.values import ProducerIdAndEpoch

NO_UNIT: Any = None
PARTITION = Partition(1, 1, "t", 0, 0, 9, 9, -1, 9, -1, -1, -1, 0, 0, 0, -1, 0)
BATCH = prepare(RecordBatch([Record(b"", b"v", timestamp=1)], 1, 0, 0), 1)
WAITS = scheduled.Waiting(1, "t", -1, 0, 0, None, None, None, 0)
EVENT = BatchAppended(1, "t", 0, None, 1, 0, 1, -1, -1, -1, False, 1, 0, 1, 0)


def store(base_serial: int = 0, **changed: Any) -> None:
    batch: PreparedBatch = BATCH._replace(**changed)
    append.store(NO_UNIT, PARTITION, batch, NO_UNIT, 1, base_serial=base_serial)


def marker(producer_id: int, coordinator_epoch: int) -> None:
    append.append_marker(
        NO_UNIT, PARTITION, ProducerIdAndEpoch(producer_id, 0), coordinator_epoch, committed=True,
        transactional_id=None, now_ms=1,
    )  # fmt: skip


def read(limits: ReadLimits) -> None:
    block.read(NO_UNIT, PARTITION, 0, 1, committed=True, want=Want.SHOWN, limits=limits)


def stored_without_a_fold(after: Partition = PARTITION) -> None:
    unit: Any = SimpleNamespace(record=lambda _: 1)
    settings = TopicConfig.resolve(BrokerConfig(), {})
    with patch.object(partition_rows, "by_id", lambda *_: after):
        append.store(unit, PARTITION, BATCH, settings, 1, base_serial=0)


def marked_without_a_fold() -> None:
    unit: Any = SimpleNamespace(record=lambda _: 1)
    with (
        patch.object(partition_rows, "by_id", lambda *_: PARTITION),
        patch.object(producer_rows, "load", lambda *_: None),
    ):
        append.append_marker(
            unit,
            PARTITION,
            ProducerIdAndEpoch(1, 0),
            0,
            committed=True,
            transactional_id=None,
            now_ms=1,
        )


def measured(size: int) -> None:
    with patch.object(batch, "_measured_in_c", lambda *_: (size, False, 0, True, [1])):
        prepare(RecordBatch([Record(b"", b"v", timestamp=1)], 1, 0, 0), 1)


def headers_of_others() -> None:
    with patch.object(batch, "_headers", lambda _: ([None, None], 0, 0)):
        prepare(RecordBatch([Record(b"", b"v", (("h", b""),), 1)], 1, 0, 0), 1)


def read_in_place() -> None:
    with (
        patch.object(block, "read_whole", lambda *_: None),
        patch.object(block, "_by_row", lambda *_, **__: (StoredRows(), 0)),
    ):
        block.read(
            NO_UNIT, PARTITION, 0, 9, committed=True, want=Want.SHOWN, limits=ReadLimits(1, 1),
            check_crcs=True,
        )  # fmt: skip


CASES: dict[str, Callable[[], object]] = {
    "a negative sequence": lambda: producer_state.nearest_serial(-1, 0),
    "a sequence beyond int32": lambda: producer_state.nearest_serial(2**31, 0),
    "no records to judge": lambda: producer_state.judge(None, BATCH._replace(count=0)),
    "no sequence to judge": lambda: producer_state.judge(None, BATCH._replace(base_sequence=-1)),
    "a start below 0": lambda: producer_state._start(-1, -1),
    "rows below 0": lambda: producer_state.judge_by_rows(1, BATCH, LookBehind(-1), StoredRange()),
    "a batch in free sequences": lambda: producer_state.judge_by_rows(
        1, BATCH, LookBehind(0), StoredRange(Duplicate(0, 0), 1)
    ),
    "a marker's epoch": lambda: producer_state.check_marker(None, -1, 0),
    "an attempt without a sequence": lambda: attempts.after_trying(None, 0, -1),
    "a producer without sequences": lambda: store(-1),
    "keys without values": lambda: store(payload=[b""]),
    "a sum too many": lambda: store(content_sums=[1, 2]),
    "headers of another batch": lambda: store(headers=[None, None]),
    "times of another batch": lambda: store(timestamps=[1, 2]),
    "the newest of no record": lambda: store(newest=1),
    "a negative size": lambda: store(stored_size=-1),
    "a schedule of readers' records": lambda: append._schedule(EVENT, [1]),
    "times of other records": lambda: append._schedule(EVENT._replace(partition=-1), [1, 2]),
    "a marker of nobody": lambda: marker(-1, 0),
    "a marker of no coordinator": lambda: marker(1, -2),
    "a sink's batch below 0": lambda: once.repeats(once.SinkBatch("s", -1, ()), 0, None),
    "no waiting partition": lambda: topics.waiting(NO_UNIT, TopicPartition("t", 0), 1),
    "a delivery to two partitions": lambda: scheduled._append(
        NO_UNIT, [WAITS, WAITS._replace(partition=-2)], NO_UNIT, 1
    ),
    "a removal from two partitions": lambda: scheduled.remove(
        NO_UNIT, [WAITS, WAITS._replace(partition_id=2)], "delivered", 1
    ),
    "a deletion of no rows": lambda: retention._delete(NO_UNIT, 1, 1, 0, 1),
    "a deletion of no bytes": lambda: retention._delete(NO_UNIT, 1, 1, 1, 0),
    "a range that ends before it starts": lambda: row_check.sound(PARTITION, [], 2, 1),
    "an empty range": lambda: block.read_whole(NO_UNIT, PARTITION, 1, 1, Want.SHOWN, 1),
    "parts of no records": lambda: block.part_of(PARTITION, 0),
    "a read of no records": lambda: read(ReadLimits(0, 0)),
    "a read of negative bytes": lambda: read(ReadLimits(1, -1)),
    "a batch that moves no end": stored_without_a_fold,
    "a batch that moves the last stable offset back": lambda: stored_without_a_fold(
        PARTITION._replace(log_end_offset=10, last_stable_offset=8)
    ),
    "a marker that moves no end": marked_without_a_fold,
    "a batch of negative size": lambda: measured(-1),
    "headers of other records": headers_of_others,
    "a read that stays where it is": read_in_place,
    "a time before 1970": lambda: by_time.list_offset(NO_UNIT, PARTITION, -4, read_committed=True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
