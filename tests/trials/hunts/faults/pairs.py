"""Two faults at once: a process killed while the lock is held, a disk full while the clock jumps."""

from __future__ import annotations

import copy
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.trials.hunts.actors.actor import Actor
from tests.trials.hunts.faults import locks, maintenance, network, signals, system
from tests.trials.hunts.faults.fault import Fault, cannot
from tests.trials.hunts.world import HuntError, World

_ALONE: Final = {"zombie", "sigterm-client", "sigterm-server", "upgrade", "restore"}
"""What follows from one of them is no longer known beside another."""
_FIRST: Final = [*signals.FAULTS, *locks.FAULTS, *maintenance.FAULTS]
_SECOND: Final = [*system.FAULTS, *network.FAULTS]
_LOOK_S: Final = 0.05


class Both(Fault):
    """One of what is done to processes and files, and one of what system and network refuse."""

    name = "both"
    summary = "two other faults, drawn, at the same time"
    ends = frozenset({"client", "server"})

    def strike(self, world: World, actor: Actor) -> bool:
        pair = [self._drawn(world, actor, faults) for faults in (_FIRST, _SECOND)]
        self.what = " and ".join(fault.name for fault in pair)
        # Each with draws of its own, whichever comes first.
        worlds = [copy.copy(world) for _ in pair]
        for each in worlds:
            each.rng = random.Random(world.rng.random())
        with ThreadPoolExecutor(len(pair)) as pool:
            struck = [
                pool.submit(fault.strike, each, actor)
                for fault, each in zip(pair, worlds, strict=True)
            ]
            while not all(future.done() for future in struck):
                time.sleep(_LOOK_S)
                world.revive()  # What one has ended is what the other waits for.
        try:
            have_happened = [future.result() for future in struck]
        except HuntError as error:
            raise HuntError(f"{self.what}: {error}") from None
        return all(have_happened)

    def _drawn(self, world: World, actor: Actor, faults: list[Fault]) -> Fault:
        return world.rng.choice(
            [it for it in faults if it.name not in _ALONE and cannot(actor, it) is None]
        )


FAULTS: Final[list[Fault]] = [Both()]
