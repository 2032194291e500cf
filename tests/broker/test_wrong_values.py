"""The assertions of the broker: each is seen to fail, by a value that eosdb's own code never passes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import eosdb.broker.broker  # noqa: F401 - It makes all steps.
from eosdb import Record, TopicPartition
from eosdb.broker import core, reading, sink
from eosdb.model import requests
from eosdb.model.values import ProducerIdAndEpoch

NOTHING: Any = None
SENDER = sink.SinkSender(None, ProducerIdAndEpoch(-1, -1))
PART = sink.SinkPart(TopicPartition("t", 0), [Record()], NOTHING)


def deleted_too_far() -> None:
    writes: Any = SimpleNamespace(write=lambda _: (NOTHING, (2, 1)))
    of: Any = SimpleNamespace(coordinator=writes)
    reading.delete_records(of, requests.DeleteRecords(PART.tp, 1))


CASES: dict[str, Callable[[], object]] = {
    "a second step for a request": lambda: core._register(requests.Fetch, NOTHING),
    "the halves of a record": lambda: PART.halves(1),
    "records deleted too far": deleted_too_far,
    "a sequence below 0": lambda: SENDER.signed(PART, -1),
    "a step without a transaction": lambda: sink._step(NOTHING, SENDER, [PART]),
    "a step without records": lambda: sink._step(
        NOTHING, sink.SinkSender("s", SENDER.producer), []
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
