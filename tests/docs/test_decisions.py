"""The pages of decisions, the lines of code that name them, and the index say the same."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT, modules

FOLDER = ROOT / "docs/decisions"
PAGES = {path.name[:4]: path for path in FOLDER.glob("0*.md")}
REPLACED = {number for number, path in PAGES.items() if "**Replaced**" in path.read_text()}


def test_every_decision_is_named_where_the_code_depends_on_it() -> None:
    named: set[str] = set()
    for path in (*modules().values(), *ROOT.glob("scripts/*.py"), *ROOT.glob("tests/*.py")):
        named.update(re.findall(r"decisions/(\d{4})", path.read_text(encoding="utf-8")))
    assert named == PAGES.keys() - REPLACED


def test_the_index_has_every_decision_under_its_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    titles = {
        (number.zfill(4), page): title
        for number, title, page in re.findall(r"(?m)^- (\d+)\. \[(.+)\]\((.+?)\)$", index)
    }
    assert titles == {
        (number, path.name): re.sub(r"^# \d+\. ", "", path.read_text().splitlines()[0])
        for number, path in PAGES.items()
    }
