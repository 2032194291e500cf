"""The tests that docs/testing.md and the README show pass; so do the fixtures instead of a container."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

IMPORTS = "import eosdb, pytest"
OF_A_CONTAINER = "def bootstrap_servers("
TEST_OF_IT = """
def test_it(bootstrap_servers):
    assert bootstrap_servers.startswith("127.0.0.1:")
"""


def blocks_of(page: str) -> list[str]:
    """The Python of a page; a diff gives the text after the change."""
    text = (ROOT / page).read_text()
    changed = re.findall(r"(?s)```diff\n(.*?)```", text)
    after = ["\n".join(re.findall(r"(?m)^[ +](.*)$", block)) for block in changed]
    return [*re.findall(r"(?s)```python\n(.*?)```", text), *after]


def test_the_tests_that_the_pages_show_pass(tmp_path: Path) -> None:
    """All in one run: the examples of the page, each of its two fixtures, and the README's test."""
    blocks = blocks_of("docs/testing.md")
    examples = "\n".join([IMPORTS, *(block for block in blocks if OF_A_CONTAINER not in block)])
    assert "schedules=100" in examples
    examples = examples.replace("schedules=100", "schedules=10")  # tests/testing runs many.
    fixtures = [f"{IMPORTS}\n{block}{TEST_OF_IT}" for block in blocks if OF_A_CONTAINER in block]
    (of_readme,) = (block for block in blocks_of("README.md") if "def test_" in block)
    for number, program in enumerate([examples, *fixtures, of_readme]):
        (tmp_path / f"test_examples_{number}.py").write_text(program)
    done = ended(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
