"""Kafka clients that write to a served file."""

from __future__ import annotations

from typing import Final

from tests.hunts.actors.actor import WIRE, Actor
from tests.hunts.world import World


class OverTheWire(Actor):
    """A program that speaks to `eosdb serve` through the proxy."""

    has = WIRE

    def begin(self, world: World) -> None:
        world.serve()
        super().begin(world)


class Confluent(OverTheWire):
    name = "confluent"
    summary = "confluent-kafka's transactional producer (librdkafka), one in seven aborted"
    module = "confluent"


ACTORS: Final[list[Actor]] = [Confluent()]
