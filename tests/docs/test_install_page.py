"""The page about installation has the extras of pyproject.toml, and no page names what is not there."""

from __future__ import annotations

import re

from scripts.release import PLACEHOLDER
from tests.tidy.test_tree import project
from tests.tidy.tree import ROOT

FOLDERS = ("docs", "eosdb", "cli", "spark_io", "examples", "demo", "migrations")
PAGES = [
    *ROOT.glob("*.md"),
    *(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".py", ".ipynb", ".html"}
    ),
]
FROM_AN_INDEX = re.compile(r"pip install [^`\n]*(?<![/\w])eosdb(?=[\s`'\"\[]|$)")
OWN_SITE = re.compile(r"https?://[^\s)>\"'`]*\beosdb\b[^\s)>\"'`]*")


def test_the_table_of_extras_is_that_of_pyproject() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| ([^|]+) \|$", page)
    wanted = {
        extra: [re.match(r"[\w-]+", package)[0] for package in packages]  # type: ignore[index]
        for extra, packages in project()["project"]["optional-dependencies"].items()
    }
    assert {extra: packages.split(", ") for extra, packages in rows} == {
        extra: packages for extra, packages in wanted.items() if packages
    }


def test_nothing_is_said_to_come_from_an_index_that_has_no_eosdb() -> None:
    """Goes with the first release. `needs_extra` says it to whoever has eosdb from an index."""
    elsewhere = {
        str(path.relative_to(ROOT))
        for path in PAGES
        if FROM_AN_INDEX.search(path.read_text(encoding="utf-8"))
    }
    assert elsewhere == {"eosdb/model/words.py"}


def test_a_site_of_eosdbs_is_that_of_pyproject_or_is_not_named() -> None:
    """`make release` asks for the repository; until it is there, no page leads to one."""
    site = project()["project"]["urls"]["Repository"]
    named = {
        url
        for path in [*PAGES, ROOT / "mkdocs.yml"]
        for url in OWN_SITE.findall(path.read_text(encoding="utf-8"))
        if "://127.0.0.1" not in url
    }
    assert not {url for url in named if PLACEHOLDER in url or not url.startswith(site)}
