"""Kafka clients that write to a served file."""

from __future__ import annotations

from typing import Final

from tests.trials.hunts.actors.actor import WIRE, Actor
from tests.trials.hunts.world import World


class OverTheWire(Actor):
    """A program that speaks to `eosdb serve` through the proxy."""

    has = WIRE

    def __init__(self, name: str, summary: str, module: str) -> None:
        self.name, self.summary, self.module = name, summary, module

    def begin(self, world: World) -> None:
        world.serve()
        super().begin(world)


ACTORS: Final[list[Actor]] = [
    OverTheWire(
        "confluent",
        "confluent-kafka's transactional producer (librdkafka), one in seven aborted",
        "confluent",
    )
]
