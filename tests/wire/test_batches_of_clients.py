"""A batch that no producer sends is refused, whatever its other attributes say."""

from __future__ import annotations

import pytest

import eosdb
from tests.wire.peer import Peer, batch, produce, produced
from tests.wire.test_produce import changed, values

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


@pytest.mark.parametrize(
    "more", [0, TRANSACTIONAL, LOG_APPEND_TIME, TRANSACTIONAL | LOG_APPEND_TIME]
)
def test_a_control_batch_is_refused_with_any_attributes(
    peer: Peer, db: eosdb.Database, more: int
) -> None:
    data = changed(batch(b"a"), 21, ">h", CONTROL | more)
    assert produced(peer.ask(produce({("t", 0): data}), 9)) == [(87, -1)]
    assert values(db) == []


@pytest.mark.parametrize(("delta", "code"), [(0, 87), (1, 0), (2, 87), (-1, 87)])
def test_the_last_offset_delta_is_that_of_the_last_record(
    peer: Peer, delta: int, code: int
) -> None:
    data = changed(batch(b"a", b"b"), 23, ">i", delta)
    ((found, _),) = produced(peer.ask(produce({("t", 0): data}), 9))
    assert found == code


@pytest.mark.parametrize("base", [-1, 1, 2**40])
def test_offsets_are_given_by_the_log(peer: Peer, base: int) -> None:
    data = changed(batch(b"a"), 0, ">q", base)
    assert produced(peer.ask(produce({("t", 0): data}), 9)) == [(87, -1)]
