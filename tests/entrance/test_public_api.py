"""What has a name for users stays as it is, or changes by a line of public_api.txt."""

from __future__ import annotations

import re

import pytest

from scripts import make_public_api
from tests.tidy.tree import ROOT

LINES_MAX = 1_960
"""What a reader can look through: 1,900 and those of fleets, worries, scheduled records, rows of a query
and records as text. A name that comes makes room by one that goes."""


@pytest.mark.slow
def test_nothing_public_comes_goes_or_changes_unseen() -> None:
    now = make_public_api.document()
    changed = make_public_api.difference(now)
    assert not changed, (
        "docs/compatibility.md says what may change and how; then `python -m scripts.make_public_api` "
        f"writes tests/entrance/public_api.txt anew, and CHANGELOG.md says it:\n{changed}"
    )
    assert now.count("\n") <= LINES_MAX
    assert make_public_api.difference(now.replace("ProducerFencedError", "")), "it would be seen"


def test_an_experimental_method_stands_apart_from_its_stable_class() -> None:
    lines = [
        "class eosdb.Database()",
        "  close() -> None",
        "  publish_copy(…) -> None",
        "      keep: int",
    ]
    lines += ["eosdb relay FILE", "  --to text", "eosdb relayed"]
    stable, experimental = make_public_api.parted(lines)
    assert stable == [*lines[:2], "eosdb relayed"]
    assert experimental == [lines[0], *lines[2:6]]


def test_the_page_names_every_experimental_command() -> None:
    """And public_api.txt has no other."""
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    text = make_public_api.FILE.read_text(encoding="utf-8")
    (part,) = re.findall(r"(?ms)^# commands, experimental until 1.1$(.*?)^# ", text)
    commands = re.findall(r"(?m)^(eosdb [a-z-]+)", part)
    assert commands
    assert {*re.findall(r"`(eosdb [a-z-]+)`", page.partition("## What is experimental")[2])} == {
        *commands
    }
