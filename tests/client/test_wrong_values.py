"""The assertions of consumers and processors: each is seen to fail, by a value that eosdb's own code never
passes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eosdb import ConsumerRecord, ManualClock, TopicPartition
from eosdb.client.consumer import fetcher
from eosdb.client.consumer.fetcher import AssignedPartitions, Cursor, Fetcher
from eosdb.client.consumer.membership import Membership
from eosdb.client.processor.dead_letters import _Progress
from eosdb.client.processor.lanes import Lanes
from eosdb.client.processor.progress import ProcessorProgress
from eosdb.client.processor.record_handler import Attempt, RecordHandler, Run
from eosdb.client.processor.transaction import ProcessingTransaction, ProducerTransaction
from eosdb.client.processor.unit_transaction import UnitTransaction
from eosdb.client.transport import DirectTransport
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


def ended_before_it_began() -> None:
    made = Lanes(1, NOTHING, ManualClock())
    later = run(1)
    later.due_ms = 2**62
    made._later.append(later)
    made._done.put(run(0))
    next(made.ended(0))


def dropped_twice() -> None:
    made = lanes()
    made.in_hand = 0
    made.drop()


def like(**attributes: object) -> Any:
    """Some attributes of an object."""
    return SimpleNamespace(**attributes)


def too_many_records() -> None:
    Fetcher.collect(
        like(cursors={TP: like(position=0, paused=False)}, locate=list, _turn=0, _calls_the_user=True,
             _collect_from=lambda *_: 2),
        1,
    )  # fmt: skip


def values_without_keys() -> None:
    settings = like(key_deserializer=None, value_deserializer=None)
    answers = iter([([], None), ([b"v"], None)])
    with patch.object(fetcher, "_deserialize", lambda *_: next(answers)):
        Fetcher._deserialized(
            like(_calls_the_user=True, _settings=settings), like(keys=[], values=[])
        )


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
    "calls that end and never began": ended_before_it_began,
    "records dropped twice": dropped_twice,
    "a batch of two partitions": lambda: RecordHandler.process_all(
        NOTHING, [run(0).attempt, run(0).attempt._replace(tp=TopicPartition("u", 0))]
    ),
    "fewer calls than before": lambda: RecordHandler._has_attempts(
        like(_failures={1: like(attempts=0)}), like(key=1, before=1)
    ),
    "results in a broken transaction": lambda: ProducerTransaction.deliver(
        like(begin=list, is_broken=True), lambda _: []
    ),
    "a commit of a broken transaction": lambda: ProducerTransaction.commit(
        like(_began_ms=1, producer=1, is_broken=True)
    ),
    "a commit of a broken unit": lambda: UnitTransaction.commit(like(is_broken=True)),
    "a read that began after its records": lambda: ProcessingTransaction.take_in(
        like(progress=lambda _: progress()), TP, [6], 7
    ),
    "an answer too few": lambda: DirectTransport.ask(
        like(_turns=like(turn=lambda *_, **__: [])), [NOTHING, NOTHING]
    ),
    "more records than wanted": too_many_records,
    "values without keys": values_without_keys,
    "the end of no record": lambda: ProcessingTransaction.complete(NOTHING, TP, []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
