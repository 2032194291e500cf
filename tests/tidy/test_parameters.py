"""A statement binds plain `?`, in the order of use."""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.tree import ROOT, modules

pytestmark = pytest.mark.slow

# decisions/0059: the driver looks up the name of any other parameter in each binding.
NUMBERED = re.compile(r"\?[0-9]")
NAMED = re.compile(r"(?<![\w:]):[a-z_]+\b|[@$][a-z_]+\b")
SQL = re.compile(r"\b(SELECT|FROM|WHERE|VALUES|SET)\b")
ROOMS = ("store", "log", "coordinator", "admin", "maintenance")
"""Where statements are. A user's own may have whatever parameters they like."""


def texts(source: str) -> list[str]:
    """The strings of a module, with a digit for what an f-string fills in."""
    found = []
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        constants = [part.value if isinstance(part, ast.Constant) else 0 for part in parts]
        if any(isinstance(constant, str) for constant in constants):
            found.append("".join(map(str, constants)))
    return found


def others(texts: list[str]) -> list[str]:
    """Texts with parameters that have a number or a name."""
    return [
        text for text in texts if NUMBERED.search(text) or (SQL.search(text) and NAMED.search(text))
    ]


def test_no_statement_has_numbered_or_named_parameters() -> None:
    statements = {
        name: texts(path.read_text(encoding="utf-8"))
        for name, path in modules().items()
        if name.startswith(tuple(f"eosdb.{room}" for room in ROOMS))
    }
    views = ROOT / "eosdb/store/views"
    statements["views"] = [path.read_text(encoding="utf-8") for path in views.glob("*.sql")]
    assert sum(bool(SQL.search(text)) for found in statements.values() for text in found) > 100
    assert {name: found for name in statements if (found := others(statements[name]))} == {}


def test_such_a_parameter_is_noticed() -> None:
    for source in (
        "'a = ?1'",
        "f'?{place}'",
        "'SELECT :at'",
        "f'SELECT {name} FROM t WHERE a = @at'",
    ):
        assert others(texts(source)), source
    assert not others(texts("""f'SELECT {a}, "b:c", \\'$.d\\' FROM t WHERE e = ? AND f = ?'"""))
