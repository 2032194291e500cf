"""Each recipe of docs/internals/architecture.md is walked: every file of its steps has its
example, and no other file has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
ROOMS = (
    "cli/commands", "eosdb/admin", "eosdb/aio", "eosdb/events", "eosdb/model", "eosdb/wire",
    "eosdb/coordinator/transactions", "eosdb/store/views",
)  # fmt: skip
"""Where an example may stand in no file but those of its recipe."""
FREE = {
    "Add a record column": "its values pass through many hands",
    "Add a field to an event": "a plain word",
    "Find the cause of a wrong answer to OffsetCommit": "others send it, too",
}
"""Recipes whose example is used beyond what a change touches, and why."""


class Recipe(NamedTuple):
    title: str
    names: list[str]
    files: set[str]
    optional: set[str]

    def is_in(self, file: Path) -> bool:
        text = file.read_text(encoding="utf-8")
        return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in self.names)


def backticked(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def recipes() -> list[Recipe]:
    made = []
    for part in PAGE.split("\n## Recipes\n")[1].split("\n### ")[1:]:
        title, _, body = part.partition("\n")
        steps, _, example = body.partition("\nExample: ")
        names, _, optional = example.partition("; optional: ")
        numbered = "\n".join(re.findall(r"(?ms)^\d\. .*?(?=^\d\. |^\S|\Z)", steps))
        files = {name for name in backticked(numbered) if re.fullmatch(r"[\w.]+(/[\w.]+)+", name)}
        made.append(Recipe(title, backticked(names), files, set(backticked(optional))))
    return made


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_the_example_is_in_every_file_of_the_recipe(recipe: Recipe) -> None:
    assert recipe.names
    assert len(recipe.files) > 3
    for name in recipe.files - recipe.optional:
        path = ROOT / name
        assert path.exists(), name
        files = (
            [path]
            if path.is_file()
            else [f for f in path.rglob("*") if f.suffix in (".py", ".sql")]
        )
        assert any(recipe.is_in(file) for file in files), f"{name} has none of {recipe.names}"


@pytest.mark.parametrize(
    "recipe", [r for r in recipes() if r.title not in FREE], ids=lambda recipe: recipe.title
)
def test_the_example_is_in_no_other_file_of_those_rooms(recipe: Recipe) -> None:
    code = [n for n in recipe.names if "-" not in n]  # A command may be named by another.
    files = [f for room in ROOMS for f in (ROOT / room).rglob("*") if f.suffix in (".py", ".sql")]
    assert files
    holding = {str(f.relative_to(ROOT)) for f in files if recipe._replace(names=code).is_in(f)}
    assert holding <= recipe.files


def test_every_free_recipe_is_there() -> None:
    assert FREE.keys() <= {recipe.title for recipe in recipes()}
