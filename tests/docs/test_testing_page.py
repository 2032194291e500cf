"""The examples of docs/testing.md are tests, and pass; so do the fixtures that replace a container."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

CONTAINER = "docs/from-a-kafka-container.md"
IMPORTS = "import eosdb, pytest"


def blocks_of(page: str) -> list[str]:
    return re.findall(r"(?s)```python\n(.*?)```", (ROOT / page).read_text())


def passed(folder: Path, *programs: str) -> str:
    """What pytest says of programs all of whose tests pass."""
    for number, program in enumerate(programs):
        (folder / f"test_examples_{number}.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_examples_of_the_testing_page_pass(tmp_path: Path) -> None:
    program = "\n".join([IMPORTS, *blocks_of("docs/testing.md")])
    assert "schedules=100" in program
    program = program.replace("schedules=100", "schedules=10")  # tests/testing runs many.
    assert "6 passed" in passed(tmp_path, program)


def test_the_fixtures_that_replace_a_container_give_the_address_of_a_cluster(
    tmp_path: Path,
) -> None:
    test = (
        "def test_it(bootstrap_servers):\n    assert bootstrap_servers.startswith('127.0.0.1:')\n"
    )
    programs = ["\n".join([IMPORTS, block, test]) for block in blocks_of(CONTAINER)]
    assert "2 passed" in passed(tmp_path, *programs)
