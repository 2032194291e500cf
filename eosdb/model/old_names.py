"""Modules that have moved: importing an old name returns the same module object as the new name.

Old names go with the next version, with a DeprecationWarning; the names that documentation tells users to
import stay.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

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
