"""The actors of the gauntlet, by name: one for each face, and for each way through it."""

from __future__ import annotations

from typing import Final

from tests.hunts.actors import clients, exports, library, relays, wire
from tests.hunts.actors.actor import Actor

ACTORS: Final[dict[str, Actor]] = {
    actor.name: actor
    for module in (library, relays, exports, wire, clients)
    for actor in module.ACTORS
}
