"""The names of the package: those that a type checker sees, and those that the interpreter finds."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from importlib import import_module

import pytest

import eosdb
from eosdb.model import old_names
from tests.tidy.tree import ROOT

PUBLIC: list[str] = vars(eosdb)["__all__"]


def for_type_checkers() -> dict[str, str]:
    """Each name, and the module that it is imported from below `if TYPE_CHECKING`."""
    tree = ast.parse((ROOT / "eosdb/__init__.py").read_text(encoding="utf-8"))
    (block, _) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_interpreter_and_type_checkers_find_the_same_names_at_the_same_places() -> None:
    assert for_type_checkers() == eosdb._MODULES
    assert len(set(PUBLIC)) == len(PUBLIC)


def test_every_public_name_is_there_and_listed() -> None:
    for name in PUBLIC:
        assert getattr(eosdb, name) is not None
    assert {*PUBLIC, "__version__"} <= {*dir(eosdb)}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'eosdb' has no attribute 'Konsumer'"):
        _ = eosdb.Konsumer  # type: ignore[attr-defined]


@pytest.mark.process
@pytest.mark.real_start
def test_a_star_import_brings_every_public_name() -> None:
    code = "from eosdb import *; import eosdb; print({*eosdb.__all__} <= {*globals()})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("old", [*old_names.STAYS, *old_names.GOES])
def test_a_moved_module_is_found_by_its_old_name_and_is_the_same(old: str) -> None:
    new = import_module(old_names.new_name(old) or "")
    sys.modules.pop(old, None)  # Another test may have asked for it.
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert import_module(old) is new
    assert [w.category for w in said] == ([DeprecationWarning] if old in old_names.GOES else [])
    assert new.__spec__ is not None
    assert new.__spec__.name == new.__name__ == old_names.new_name(old)


def test_what_is_inside_a_moved_package_is_found_by_its_old_name() -> None:
    sys.modules.pop("eosdb.relay", None)
    with pytest.warns(DeprecationWarning, match="eosdb.relay is called eosdb.integrations.relay"):
        settings = import_module("eosdb.relay.settings")
    assert settings is import_module("eosdb.integrations.relay.settings")
