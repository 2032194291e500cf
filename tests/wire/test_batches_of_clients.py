"""A batch that no producer sends is refused, whatever its other attributes say."""

from __future__ import annotations

import pytest

import eosdb
from eosdb.errors import InvalidRecordError
from eosdb.wire import batches
from eosdb.wire.limits import Allowance, Memory
from tests.cases import each
from tests.wire.peer import Peer, batch, produce, produced
from tests.wire.test_produce import changed, values

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


@each("more", [0, TRANSACTIONAL, LOG_APPEND_TIME, TRANSACTIONAL | LOG_APPEND_TIME])
def test_a_control_batch_is_refused_with_any_attributes(
    peer: Peer, db: eosdb.Database, more: int
) -> None:
    data = changed(batch(b"a"), 21, ">h", CONTROL | more)
    assert produced(peer.ask(produce({("t", 0): data}), 9)) == [(87, -1)]
    assert values(db) == []
    with pytest.raises(InvalidRecordError, match="a control batch"):
        batches.decode(data, 9, Allowance(Memory(1 << 20).lease()))


@each(("delta", "code"), [(0, 87), (1, 0), (2, 87), (-1, 87)])
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


def test_a_record_without_a_time_has_that_of_its_append(peer: Peer, db: eosdb.Database) -> None:
    assert produced(peer.ask(produce({("t", 0): batch(b"a", time_ms=-1)}), 9)) == [(0, 0)]
    assert produced(peer.ask(produce({("t", 0): batch(b"b", time_ms=5)}), 9)) == [(0, 1)]
    first, second = db.broker.fetch(eosdb.TopicPartition("t", 0), 0).records
    assert first.timestamp == db.clock.time_ms()
    assert second.timestamp == 5
