"""The actors of the gauntlet, by name: one for each face, and for each way through it."""

from __future__ import annotations

from typing import Final

from tests.hunts.actors import (
    clients,
    copies,
    exports,
    library,
    moves,
    processors,
    relays,
    spark,
    wire,
)
from tests.hunts.actors.actor import Actor

_MODULES: Final = (library, processors, relays, moves, copies, exports, spark, wire, clients)
ACTORS: Final[dict[str, Actor]] = {
    actor.name: actor for module in _MODULES for actor in module.ACTORS
}
