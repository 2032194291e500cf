"""The list of planted bugs keeps up with the code: each can be planted, and names tests that exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.planted.planting import Bug, bugs, copy_tree, results, try_one
from tests.tidy.tree import ROOT

BUG = Bug(
    "sequences_never_wrap",
    "",
    "eosdb/log/producer_state.py",
    "serial if serial < 0 else serial % SEQUENCE_COUNT",
    "serial",
    ("tests/log/test_producer_state.py",),
)


def test_each_bug_can_be_planted() -> None:
    """If the code has moved on, let the bug follow it; if the mistake cannot be made any more, drop it."""
    assert [problem for bug in bugs().values() if (problem := bug.problem())] == []


def test_each_names_tests_that_exist() -> None:
    missing = []
    for bug in bugs().values():
        assert bug.found_by, bug.name
        for test in bug.found_by:
            path, _, function = test.partition("[")[0].partition("::")
            file = ROOT / path
            if not file.is_file() or f"def {function}(" not in file.read_text():
                missing.append(f"{bug.name}: {test}")
    assert missing == []


def test_each_was_found_when_it_was_planted() -> None:
    """`python -m tests.planted NAME` plants it and notes the result."""
    assert bugs().keys() == results().keys()


@pytest.mark.slow
@pytest.mark.process
def test_a_bug_is_found_or_survives_and_leaves_the_copy_sound(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree")
    found = try_one(BUG, tree)
    assert (found.status, found.test.partition("::")[0]) == (1, BUG.found_by[0])
    blind = replace(BUG, found_by=("tests/log/test_index_search.py",))
    assert str(try_one(blind, tree)) == "SURVIVED"
    assert (tree / BUG.file).read_text() == (ROOT / BUG.file).read_text()
    assert replace(BUG, old="nowhere").problem() is not None
