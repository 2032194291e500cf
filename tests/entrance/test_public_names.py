"""The names of the package: those that a type checker sees, and those that the interpreter finds."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from types import ModuleType

import pytest

import eosdb
from tests.programs import ended
from tests.tidy.tree import ROOT

PUBLIC: list[str] = vars(eosdb)["__all__"]


def for_type_checkers() -> dict[str, str]:
    """Each name, and the module that it is imported from below `if TYPE_CHECKING`."""
    tree = ast.parse((ROOT / "eosdb/__init__.py").read_text(encoding="utf-8"))
    block, _ = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module not in ("eosdb", "eosdb.errors")
        for alias in node.names
    }


def test_the_interpreter_and_type_checkers_find_the_same_names_at_the_same_places() -> None:
    assert for_type_checkers() == eosdb._MODULES
    assert len(set(PUBLIC)) == len(PUBLIC)


def test_every_public_name_is_there_and_listed() -> None:
    for name in PUBLIC:
        assert getattr(eosdb, name) is not None
    assert dir(eosdb) == sorted([*PUBLIC, "__version__"])


def test_no_module_is_listed_and_only_the_errors_that_programs_catch() -> None:
    listed = [getattr(eosdb, name) for name in PUBLIC]
    assert not [each for each in listed if isinstance(each, ModuleType)]
    errors = [each for each in listed if isinstance(each, type) and issubclass(each, Exception)]
    assert 10 <= len(errors) <= 16


def test_every_error_is_a_name_of_the_package() -> None:
    for name in eosdb.errors.__all__:
        assert getattr(eosdb, name) is getattr(eosdb.errors, name)


@pytest.mark.process
@pytest.mark.real_start
def test_the_package_alone_imports_nothing() -> None:
    code = "import sys; before = {*sys.modules}; import eosdb; print(*{*sys.modules} - before)"
    done = ended([sys.executable, "-c", code], check=True)
    assert {*done.stdout.split()} == {"eosdb", "eosdb.system"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'eosdb' has no attribute 'Konsumer'"):
        _ = eosdb.Konsumer  # type: ignore[attr-defined]


@pytest.mark.process
@pytest.mark.real_start
def test_a_star_import_brings_every_public_name() -> None:
    code = "from eosdb import *; import eosdb; print({*eosdb.__all__} <= {*globals()})"
    done = ended([sys.executable, "-c", code], check=True)
    assert done.stdout.strip() == "True"


def test_failpoints_are_found_by_their_public_name() -> None:
    assert import_module("eosdb.failpoints") is import_module("eosdb.model.failpoints")
