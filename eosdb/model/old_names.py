"""Old spellings, which work for one version with a DeprecationWarning.

The import of a module's old name returns the same module object as its new name; the names that
documentation tells users to import stay.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

STAYS: Final = {"eosdb.failpoints": "eosdb.model.failpoints"}
GOES: Final = {
    **{
        f"eosdb.{name}": f"eosdb.model.{name}"
        for name in ("clock", "config", "metrics", "progress", "topic_config", "validation")
    },
    **{
        f"eosdb.{name}": f"eosdb.integrations.{name}"
        for name in (
            "arrow",
            "exposition",
            "lakehouse",
            "moving",
            "publishing",
            "relay",
            "tracing",
            "ui",
        )
    },
    "eosdb.datasette_plugin": "eosdb.integrations.datasette.plugin",
}


_MOVED: Final = {**STAYS, **GOES}


def warn(old: str, new: str) -> None:
    """Warn the program, at its own line, of an old spelling and its new one."""
    level, frame = 1, sys._getframe()
    while (outer := frame.f_back) is not None and _is_inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, outer
    text = f"{old} is {new} now; the old spelling ends with the next version"
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def _is_inside(module: str) -> bool:
    return module == "collections.abc" or module.partition(".")[0] == "eosdb"


def offsets_first(offsets: object, group: object, call: str = "") -> tuple[Any, Any]:
    """The offsets and the group in this order, also if they were given the other way round: only offsets
    are a mapping. That other order is an old spelling of `call`, if it is named."""
    if not isinstance(group, Mapping) or isinstance(offsets, Mapping):
        return offsets, group
    if call:
        warn(f"{call}(group, offsets)", f"{call}(offsets, group)")
    return group, offsets


def new_name(name: str) -> str | None:
    """The new name of a module; None if it has not moved. Called for every import of a program."""
    if not name.startswith("eosdb."):
        return None
    package, module, *inside = name.split(".")
    new = _MOVED.get(f"{package}.{module}")
    return None if new is None else ".".join((new, *inside))


class OldNames(MetaPathFinder, Loader):
    """An import finder for moved modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if new_name(name) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        new = new_name(name)
        assert new is not None
        if name in GOES:
            text = f"{name} is called {new} now; the old name goes with the next version"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        # The import system returns what stands there, not the module that it has made.
        sys.modules[name] = import_module(new)
