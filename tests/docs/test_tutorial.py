"""Whoever copies the blocks of the tutorial, page after page, sees what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shell import Shell
from tests.docs.tutorial import agrees, follow
from tests.tidy.tree import ROOT

PAGES = sorted((ROOT / "docs/tutorial").glob("[0-9]*.md"))


@pytest.mark.process
def test_a_reader_of_the_tutorial_sees_what_it_shows(tmp_path: Path) -> None:
    assert len(PAGES) == 7
    shell = Shell(tmp_path)
    for page in PAGES:
        follow(page, shell)


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("a  1\n", "a  1", True),
        ("a  2\n", "a  1", False),
        ("a  1\nb\n", "a  1", False),
        ("ok: 39 events, 0.1 s\n", "ok: … events, …", True),
        ("bad: 39 events, 0.1 s\n", "ok: … events, …", False),
        ("head\nx\ny\n", "…\ny", True),
    ],
)
def test_output_agrees_with_what_is_shown(said: str, printed: str, same: bool) -> None:
    assert agrees(said, printed) == same
