"""Producer ids: never reused, taken from blocks that are allocated durably (ProducerIdManager).

A database object holds one block in memory. Allocating the next block is an event with the next block
version, so two processes that read the same state cannot both allocate it. The unused ids of a block are
lost when the database is closed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from eosdb.errors import ProducerIdsExhaustedError
from eosdb.events.kinds import ProducerIdBlockAllocated
from eosdb.model.clock import Clock
from eosdb.model.config import INT64_MAX
from eosdb.store.counters import counter
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit

NEXT_PRODUCER_ID: Final = "next_producer_id"
BLOCK_VERSION: Final = "producer_id_block_version"


@dataclass(frozen=True, slots=True)
class BlockState:
    """The first id of the next block, and the number of blocks allocated so far."""

    next_producer_id: int
    version: int


def next_block(state: BlockState, size: int, now_ms: int) -> ProducerIdBlockAllocated:
    """The event that allocates the next block.

    Raises ProducerIdsExhaustedError when fewer than `size` ids are left below 2**63.
    """
    if state.next_producer_id > INT64_MAX - size:
        raise ProducerIdsExhaustedError(
            f"the next producer id would be {state.next_producer_id}, a block of {size} does not fit "
            "below 2**63; this file can have no further producers, start a new one"
        )
    return ProducerIdBlockAllocated(
        timestamp=now_ms,
        first_producer_id=state.next_producer_id,
        size=size,
        version=state.version + 1,
    )


class ProducerIdManager:
    """Gives out the ids of the block in memory. Threads may share it."""

    def __init__(self, store: Store, clock: Clock, block_size: int) -> None:
        self._store = store
        self._clock = clock
        self._block_size = block_size
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """A producer id that was never used. Raises ProducerIdsExhaustedError."""
        with self._lock:
            if self._next == self._end:
                self._allocate_block()
            producer_id = self._next
            self._next += 1
            return producer_id

    def _allocate_block(self) -> None:
        event = None
        while event is None:
            state = self._store.write(_state, sync=False, tells=False)
            proposal = next_block(state, self._block_size, self._clock.time_ms())

            def allocate(unit: Unit, proposal: ProducerIdBlockAllocated = proposal) -> bool:
                if _state(unit).version + 1 != proposal.version:
                    return False
                unit.record(proposal)
                return True

            if self._store.write(allocate, tells=False):
                event = proposal
        self._next = event.first_producer_id
        self._end = event.first_producer_id + event.size


def _state(unit: Unit) -> BlockState:
    return BlockState(counter(unit, NEXT_PRODUCER_ID), counter(unit, BLOCK_VERSION))
