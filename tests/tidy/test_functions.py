"""A function can be read on one screen and called without counting its arguments."""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

import pytest

from tests.tidy.tree import modules, parsed

pytestmark = pytest.mark.slow

LINES_MAX: Final = 60
PARAMETERS_MAX: Final = 9
LONGER: Final = {
    "eosdb.testing.faulty_transport.__init__": (42, 10),
}
"""Lines and parameters of those beyond the limits. The list may only shrink, and so may its numbers."""


@cache
def sizes() -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name in modules():
        if name.startswith("eosdb.migrations"):
            continue
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key = f"{name}.{node.name}"
                lines = (node.end_lineno or 0) - node.lineno + 1
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                # A face gives its function the core, in the place of `self`.
                parameters = sum(argument.arg not in ("self", "cls", "core") for argument in given)
                before = found.get(key, (0, 0))
                found[key] = max(lines, before[0]), max(parameters, before[1])
    return found


def test_functions_keep_within_the_limits_or_are_listed() -> None:
    beyond = {
        name: size
        for name, size in sizes().items()
        if size[0] > LINES_MAX or size[1] > PARAMETERS_MAX
    }
    assert beyond.keys() <= LONGER.keys()
    assert not {n: s for n, s in beyond.items() if s[0] > LONGER[n][0] or s[1] > LONGER[n][1]}


def test_the_list_holds_no_function_that_keeps_within_the_limits() -> None:
    now = sizes()
    kept = {
        name
        for name in LONGER
        if now.get(name, (0, 0))[0] <= LINES_MAX and now.get(name, (0, 0))[1] <= PARAMETERS_MAX
    }
    assert not kept
