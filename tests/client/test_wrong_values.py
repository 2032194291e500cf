"""The assertions of consumers and processors: each is seen to fail, by a value that eosdb's own code never
passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eosdb import ConsumerRecord, ManualClock, TopicPartition
from eosdb.client.consumer.fetcher import AssignedPartitions, Cursor
from eosdb.client.consumer.membership import Membership
from eosdb.client.processor.dead_letters import _Progress
from eosdb.client.processor.lanes import Lanes
from eosdb.client.processor.progress import ProcessorProgress
from eosdb.client.processor.record_handler import Attempt, RecordHandler, Run
from eosdb.client.processor.transaction import ProcessingTransaction
from eosdb.model.fetched import Block, StoredRows

NOTHING: Any = None
TP = TopicPartition("t", 0)


def run(offset: int, *, is_out: bool = False) -> Run:
    record = ConsumerRecord("t", 0, offset, 0, 0, b"k", None, ())
    made = Run(Attempt(TP, record, record))
    made.is_out = is_out
    return made


def filled() -> Cursor:
    cursor = Cursor()
    cursor.fill(Block(0, 1, StoredRows(offset=[0]), NOTHING))
    return cursor


def progress() -> ProcessorProgress:
    made = ProcessorProgress()
    made.take([5])
    return made


def lanes() -> Lanes:
    made = Lanes(1, NOTHING, ManualClock())
    made.is_stopped = True
    made.put(run(0).attempt)
    return made


CASES: dict[str, Callable[[], object]] = {
    "a partition assigned twice": lambda: AssignedPartitions({TP: Cursor()}, NOTHING).assign([TP]),
    "a block from elsewhere": lambda: Cursor().fill(Block(1, 2, StoredRows(), NOTHING)),
    "a block that goes back": lambda: Cursor().fill(Block(0, -1, StoredRows(), NOTHING)),
    "no records ahead": lambda: Cursor().ahead(TP, 0),
    "a step back": lambda: Cursor().advance(-1),
    "a step beyond the block": lambda: filled().advance(2),
    "an endless pause": lambda: Membership._ask_later(type("M", (), {"_backoff_ms": 101})()),
    "records out of order": lambda: progress().take([4]),
    "a record that was not taken": lambda: progress().complete([6]),
    "an offset below 0": lambda: progress().pass_by(-1),
    "a letter below the others": lambda: _Progress(None).advance(-1),
    "a release of nothing": lambda: Lanes(1, NOTHING, ManualClock()).release(run(0)),
    "a pause of a running record": lambda: lanes().again(run(0, is_out=True), 1),
    "a call of a running record": lambda: lanes()._begin(run(0, is_out=True)),
    "the second of a lane": lambda: lanes()._advance(run(1)),
    "a batch of no record": lambda: RecordHandler.process_all(NOTHING, []),
    "the end of no record": lambda: ProcessingTransaction.complete(NOTHING, TP, []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
