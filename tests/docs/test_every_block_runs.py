"""Each page's Python is run by a test. One that is not has the language `py`, and a reason here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.test_links_and_examples import DOCUMENTS, PAGES
from tests.docs.test_tutorial import PAGES as TUTORIAL
from tests.tidy.tree import ROOT

OWN_WAYS = {
    "docs/testing.md": "tests/docs/test_testing_page.py",
    "docs/web.md": "tests/docs/test_web_page.py",
}
"""Pages whose blocks are not one program, and the test that runs all of them."""
NOT_RUN = {
    "docs/lakehouse.md": (2, "`make lakehouse`: Spark fetches jars for it"),
    "docs/testing.md": (2, "the jars of Java's client and of Spark's connector"),
}
"""How many blocks of a page have the language `py`, and why no test runs them."""


def blocks(language: str) -> dict[str, int]:
    """How many blocks each page has in this language."""
    found = {
        path.relative_to(ROOT).as_posix(): len(
            re.findall(rf"(?m)^ *```+ *{language}\b", path.read_text(encoding="utf-8"))
        )
        for path in DOCUMENTS
    }
    return {page: count for page, count in found.items() if count}


def run_as_one_program() -> Iterator[str]:
    """The pages of which tests run every block: those of the table, and by `python_of` or `python_in`."""
    yield from (page for page, what in PAGES if "python" in what)
    for path in (ROOT / "tests/docs").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="python_of" | "python_in"),
                    args=[ast.Constant(value=str(page)), *_],
                ):
                    yield page


def test_every_page_with_python_is_run_by_a_test() -> None:
    tutorial = {path.relative_to(ROOT).as_posix() for path in TUTORIAL}
    pages = blocks("python").keys()
    assert not pages - {*run_as_one_program(), *OWN_WAYS, *tutorial}
    assert pages >= OWN_WAYS.keys()


def test_a_page_with_its_own_way_is_named_in_its_test() -> None:
    for page, test in OWN_WAYS.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_python_that_is_not_run_is_counted() -> None:
    assert blocks("(?:py|pycon|py3|python3)") == {
        page: count for page, (count, _) in NOT_RUN.items()
    }
