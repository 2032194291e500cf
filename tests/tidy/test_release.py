"""What is published: its metadata, and what `make release` finds wrong."""

from __future__ import annotations

import pytest

import eosdb
from scripts import pages
from scripts.release import complaints
from tests.tidy.test_tree import project
from tests.tidy.tree import ROOT

GROUPS = {"bench", "demo", "dev", "examples", "site", "test"}


def test_the_version_is_the_same_wherever_it_stands() -> None:
    assert project()["project"]["version"] == eosdb.__version__


def test_extras_are_what_users_need_and_groups_what_a_checkout_needs() -> None:
    assert project()["dependency-groups"].keys() == GROUPS
    assert not project()["project"]["optional-dependencies"].keys() & GROUPS


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tests/test_x.py", "does not belong there"),
        ("eosdb/__pycache__/x.pyc", "does not belong there"),
        ("benchmarks/run.py", "does not belong there"),
        (".gitignore", "does not belong there"),
        ("eosdb/shop.db", "does not belong there"),
        ("eosdb/x.py", "names /home/someone, a folder of this machine"),
    ],
)
def test_what_does_not_belong_into_a_release_is_named(name: str, complaint: str) -> None:
    files = {"eosdb/testing/plugin.py": b"", name: b"'/home/someone/eosdb'"}
    needed = ["eosdb/py.typed"]
    found = complaints(files, needed, ["/home/someone"])
    assert "eosdb/py.typed is missing" in found
    assert f"{name} {complaint}" in found
    assert complaints({"eosdb/testing/plugin.py": b""}, [], ["/home/someone"]) == []


def test_the_tour_of_the_readme_is_found() -> None:
    tour = pages.section((ROOT / "README.md").read_text(encoding="utf-8"), "Five minutes")
    assert "eosdb.connect(" in pages.python_of(tour)
    assert "eosdb " in pages.commands_of(tour)
    with pytest.raises(LookupError, match="'Ten minutes'"):
        pages.section(tour, "Ten minutes")
