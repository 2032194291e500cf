"""The examples of docs/testing.md are tests, and pass; so are the fixtures that replace a container."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT


def blocks_of(page: str) -> list[str]:
    return re.findall(r"(?s)```python\n(.*?)```", (ROOT / page).read_text())


def passed(folder: Path, program: str) -> str:
    """What pytest says of a program all of whose tests pass."""
    path = folder / "test_examples.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_examples_of_the_testing_page_pass(tmp_path: Path) -> None:
    program = "\n".join(["import eosdb, pytest", *blocks_of("docs/testing.md")])
    assert "6 passed" in passed(tmp_path, program)


@pytest.mark.parametrize("fixture", blocks_of("docs/from-a-kafka-container.md"))
def test_the_fixtures_that_replace_a_container_give_the_address_of_a_cluster(
    fixture: str, tmp_path: Path
) -> None:
    test = (
        "def test_it(bootstrap_servers):\n    assert bootstrap_servers.startswith('127.0.0.1:')\n"
    )
    assert "1 passed" in passed(tmp_path, "\n".join(["import pytest", fixture, test]))
