"""Modules that have moved: importing one by its old name gives the module itself, once and the same.

An old name goes with the next version, and says so; a name that programs are told to import stays.
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


def new_name(name: str) -> str | None:
    """What a module is called now; None if it has not moved."""
    for old, new in {**STAYS, **GOES}.items():
        if name == old or name.startswith(old + "."):
            return new + name.removeprefix(old)
    return None


class OldNames(MetaPathFinder, Loader):
    """Finds moved modules for `import`."""

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
