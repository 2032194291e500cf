"""A cursor that is interrupted anywhere ends: its next record never stands beyond its block."""

from __future__ import annotations

import contextlib

import pytest

from eosdb import Block, PartitionOffsets, TopicPartition
from eosdb.client.consumer.fetcher import Cursor
from eosdb.model.fetched import StoredRows
from tests.chaos.interrupting import Interrupt

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
BOUNDS = PartitionOffsets(0, 10, 10, 10, -1)


def test_a_cursor_that_is_interrupted_while_it_is_emptied_asks_for_a_fetch() -> None:
    for at in range(100):
        cursor = Cursor()
        cursor._block, cursor._next = Block(7, 10, StoredRows(offset=(7, 8, 9)), BOUNDS), 3
        interrupt = Interrupt(at)
        with contextlib.suppress(KeyboardInterrupt):
            interrupt.run(cursor._empty)
        assert cursor.ahead(TP, 1) is None
        if not interrupt.reached:
            return
    raise AssertionError("it has fewer places than that")
