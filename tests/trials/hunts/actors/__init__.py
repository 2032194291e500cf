"""The actors of the gauntlet, by name: one for each face, and for each way through it.

A module of this package with a list `ACTORS` is one of actors; nobody has to name it here.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from tests.trials.hunts.actors.actor import Actor

_MODULES: Final = [
    importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
]
ACTORS: Final[dict[str, Actor]] = {
    actor.name: actor for module in _MODULES for actor in getattr(module, "ACTORS", ())
}
