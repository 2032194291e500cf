"""The page about the server has what is served, in its versions; that of the judges has its clients."""

from __future__ import annotations

import re

from eosdb.wire.handlers import APIS
from tests.tidy.tree import ROOT
from tests.trials.judges import years

PAGE = (ROOT / "docs/wire.md").read_text(encoding="utf-8")


def test_every_api_is_on_the_page_with_its_versions() -> None:
    section = PAGE.split("\n## What is served\n", 1)[1].split("\n## ", 1)[0]
    found: dict[str, str] = {}
    for names, versions in re.findall(r"(?m)^\| ([A-Z]\w+(?:, \w+)*) \| ([\d–, ]+) \|", section):
        all_names, all_versions = names.split(", "), versions.split(", ")
        if len(all_versions) == 1:
            all_versions *= len(all_names)
        found |= dict(zip(all_names, all_versions, strict=True))
    assert found == {
        api.name: f"{api.lowest}–{api.highest}" if api.lowest < api.highest else str(api.highest)
        for api in APIS.values()
    }


def test_the_clients_by_year_are_those_of_the_judge() -> None:
    assert years.table() in (ROOT / "tests/trials/README.md").read_text(encoding="utf-8")
