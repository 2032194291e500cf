"""Deliberate bugs in groups whose partitions the coordinator assigns (KIP-848)."""

from __future__ import annotations

from typing import Any

from eosdb.coordinator.groups import consumer_decisions
from tests.simulation.planting import instead_of


@instead_of(
    "a static member that comes back stands beside its former self",
    consumer_decisions,
    "_subscribed_member",
)
def static_members_double(subscribed: Any, group: Any, beat: Any) -> Any:
    return (subscribed(group, beat)[0], None)
