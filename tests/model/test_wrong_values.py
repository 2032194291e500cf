"""The assertions of the model: each is seen to fail, by a value that eosdb's own code never passes."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from eosdb import ManualClock
from eosdb.model import finished
from eosdb.model.assignors import Subscriber, _Sharing
from eosdb.model.metrics import Metrics
from eosdb.model.records.columns import PartitionColumns, piece
from eosdb.model.records.partitioner import consistent_random, partitions_of
from eosdb.model.records.record_columns import RecordColumns, piece_length

ONE = PartitionColumns("t", 0, [0], [0], [0], [None], [None], [])
SHARING = _Sharing([Subscriber("a", ["t"])], {"t": 1})
AUDIENCE = frozenset({"a"})


def kept_back() -> None:
    with patch.object(_Sharing, "_give", lambda *_: None):
        _Sharing([Subscriber("a", ["t"])], {"t": 1}).give_out()


CASES: dict[str, Callable[[], object]] = {
    "an unfinished record at the end": lambda: finished.text(3, [3]),
    "unfinished records out of order": lambda: finished.text(9, [2, 1]),
    "a piece that ends before it starts": lambda: piece(ONE, 1, 0),
    "a piece of no record": lambda: piece_length(0, 1, 1, 1),
    "a piece of negative size": lambda: piece_length(1, -1, 1, 1),
    "headers of a record that is none": lambda: RecordColumns([], [], []).lay_headers([()], 1),
    "a topic without partitions": lambda: partitions_of(consistent_random, [b"k"], 0),
    "a counter that falls": lambda: Metrics(ManualClock()).count("n", -1),
    "a partition that nobody gets": kept_back,
    "a partition for a stranger": lambda: SHARING._give("b", ("t", 0)),
    "a move of no partition": lambda: SHARING._pass_on("a", AUDIENCE, "a", 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
