"""The library's own ways to write."""

from __future__ import annotations

from typing import Final

import eosdb
from eosdb import TopicPartition
from tests.hunts.actors.actor import Actor
from tests.hunts.programs.working import TOPIC
from tests.hunts.world import World


class Library(Actor):
    name = "producer"
    summary = "the library's producer: transactions with offsets, one in seven aborted"
    module = "library"

    def problems(self, world: World) -> list[str]:
        """The place of the group is that of the last transaction whose records are there."""
        possible: list[int] = []
        for operation in world.ledgers.operations.values():
            if operation.outcome == "written":
                possible = [operation.number]
            elif operation.outcome == "unknown":
                possible.append(operation.number)
        with eosdb.connect(world.path) as db:
            place = db.broker.offset_fetch("places")[TopicPartition(TOPIC, 0)].offset
        return [] if place in possible else [f"the group stands at {place}, expected {possible}"]


ACTORS: Final[list[Actor]] = [Library()]
