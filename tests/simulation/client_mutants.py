"""Deliberate bugs in the client."""

from __future__ import annotations

from typing import Any

from eosdb.client.answers import is_lost
from eosdb.client.producer import completion, state
from eosdb.errors import (
    EosdbError,
)
from eosdb.model.values import ProduceResult
from tests.simulation.planting import instead_of

# -- the client --------------------------------------------------------------------------------------


@instead_of(
    "the client repeats a batch under a new sequence", completion.BatchCompletion, "_repeat"
)
def client_repeats_under_a_new_sequence(
    repeat: Any, self: Any, batch: Any, error: EosdbError, now_ms: int
) -> None:
    if is_lost(error) and batch.identity is not None:
        own = self._manager.progress(batch.tp)
        own.drop(batch)
        own.acknowledged = own.next_serial
        batch.identity, batch.serial = None, -1
    repeat(self, batch, error, now_ms)


@instead_of("the client takes a lost answer for a success", completion.BatchCompletion, "_repeat")
def client_takes_silence_for_success(
    repeat: Any, self: Any, batch: Any, error: EosdbError, now_ms: int
) -> None:
    if is_lost(error):
        self._stored(batch, ProduceResult(), now_ms)
    else:
        repeat(self, batch, error, now_ms)


@instead_of(
    "the client sends several batches before the first of a pipeline is answered",
    state.PartitionProgress,
    "admits_new",
)
def client_opens_the_window_at_once(
    admits: Any, self: Any, identity: Any, max_in_flight: int, now_ms: int, **options: Any
) -> bool:
    self._known_ms = now_ms
    return bool(admits(self, identity, max_in_flight, now_ms, **options))
