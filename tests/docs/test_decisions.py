"""The pages of decisions, the lines of code that name them, and the index of both say the same."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.tidy.tree import ROOT, modules

FOLDER = ROOT / "docs/decisions"
PAGES = {path.name[:4]: path.name for path in FOLDER.glob("0*.md")}
REPLACED = {
    number for number, name in PAGES.items() if "**Replaced**" in (FOLDER / name).read_text()
}


def named_in_the_code() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (*modules().values(), *ROOT.glob("scripts/*.py")):
        for number in re.findall(r"decisions/(\d{4})", path.read_text(encoding="utf-8")):
            found[number].add(str(path.relative_to(ROOT)))
    return found


def test_every_decision_is_named_where_the_code_depends_on_it() -> None:
    assert named_in_the_code().keys() == PAGES.keys() - REPLACED


def test_the_index_leads_to_every_decision_and_to_its_places_in_the_code() -> None:
    rows = re.findall(
        r"(?m)^\| \[(\d+)\]\((.+?)\) \| .+ \| (.+) \|$", (FOLDER / "README.md").read_text()
    )
    assert {number.zfill(4): page for number, page, _ in rows} == PAGES
    places = {
        number.zfill(4): set(re.findall(r"\(\.\./\.\./(.+?)\)", where))
        for number, _, where in rows
        if number.zfill(4) not in REPLACED
    }
    assert places == named_in_the_code()
