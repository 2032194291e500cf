"""The documentation stays short: a limit of words for users, and one for implementers."""

from __future__ import annotations

from tests.cases import each
from tests.tidy.tree import ROOT

LIMITS = {"users": 40_700, "internals": 12_950}
README_LIMIT = 1_100
WRITTEN_BY_PROGRAMS = {
    "docs/internals/conformance.md", "docs/internals/gauntlet.md", "docs/internals/notices.md",
}  # fmt: skip


def words(text: str) -> int:
    """Those with a letter or a digit, code included; a table's bars and dashes are no words."""
    return sum(any(char.isalnum() for char in word) for word in text.split())


@each("readers", LIMITS)
def test_the_pages_have_no_more_words_than_their_limit(readers: str) -> None:
    """Decisions and the reference, which is made of docstrings, do not count."""
    counted = {
        page: words(path.read_text(encoding="utf-8"))
        for path in ROOT.glob("docs/**/*.md")
        if (page := str(path.relative_to(ROOT))) not in WRITTEN_BY_PROGRAMS
        and not page.startswith(("docs/decisions/", "docs/reference/"))
        and page.startswith("docs/internals/") == (readers == "internals")
    }
    largest = sorted(counted.items(), key=lambda item: -item[1])[:8]
    assert sum(counted.values()) <= LIMITS[readers], f"say each thing once, and link: {largest}"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert words((ROOT / "README.md").read_text(encoding="utf-8")) <= README_LIMIT
