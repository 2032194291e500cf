"""What a fault is: something done to a world while the actor works, after which it must go on."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.world import World


class Fault(ABC):
    """Base of the faults."""

    name: str
    summary: str
    needs: frozenset[Need] = frozenset()
    ends: frozenset[str] = frozenset()
    """The roles whose process it may end; one that ends else is a finding."""

    what = ""
    """What it was in particular, at the last time."""

    @abstractmethod
    def strike(self, world: World, actor: Actor) -> bool:
        """Do it, wait, and undo it. Returns whether it has truly happened; if not, it is struck again.
        Random choices come from `world.rng`. Raises HuntError."""


def cannot(actor: Actor, fault: Fault) -> str | None:
    """Why the cell cannot occur; None if it can."""
    if reason := actor.cannot.get(fault.name):
        return reason
    missing = sorted(fault.needs - actor.has, key=lambda need: need.name)
    return missing[0].value if missing else None
