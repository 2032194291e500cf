"""Each claim of the page about security names a test that exists."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def test_each_claim_names_tests_that_there_are() -> None:
    tables = re.findall(r"(?m)^\|.* test \|\n\|[ :|-]+\|\n((?:\|.+\|\n)+)", PAGE)
    claims = [row for table in tables for row in table.splitlines()]
    assert len(claims) > 30
    for claim in claims:
        tests = TEST.findall(claim)
        assert tests, claim
        for name, path in tests:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
