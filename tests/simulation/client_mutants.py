"""Deliberate bugs in the client."""

from __future__ import annotations

from typing import Any

from eosdb.client.answers import is_lost
from eosdb.client.producer.state import Batches
from eosdb.errors import EosdbError
from eosdb.model.values import ProduceResult
from tests.simulation.planting import instead_of

# -- the client --------------------------------------------------------------------------------------


@instead_of("the client repeats a batch under a new sequence", Batches, "_not_stored")
def client_repeats_under_a_new_sequence(
    not_stored: Any, self: Any, batch: Any, error: EosdbError, now_ms: int
) -> None:
    if is_lost(error) and batch.identity is not None:
        batch.identity, batch.serial = None, -1
    not_stored(self, batch, error, now_ms)


@instead_of("the client takes a lost answer for a success", Batches, "_not_stored")
def client_takes_silence_for_success(
    not_stored: Any, self: Any, batch: Any, error: EosdbError, now_ms: int
) -> None:
    if is_lost(error):
        self._stored(batch, ProduceResult())
    else:
        not_stored(self, batch, error, now_ms)
