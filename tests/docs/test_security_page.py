"""Each claim of the page about attacks, and each rule of the house, names a test that exists."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT

TEST = re.compile(r"\[(test_\w+)\]\((?:\.\./)+(tests/[\w/]+\.py)\)")
HOW_MANY = {"internals/attacks.md": range(31, 100), "internals/rules.md": [12]}


@pytest.mark.parametrize("page", HOW_MANY)
def test_each_claim_names_tests_that_there_are(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tables = re.findall(r"(?m)^\|.* test \|\n\|[ :|-]+\|\n((?:\|.+\|\n)+)", text)
    claims = [row for table in tables for row in table.splitlines()]
    assert len(claims) in HOW_MANY[page]
    for claim in claims:
        tests = TEST.findall(claim)
        assert tests, claim
        for name, path in tests:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
