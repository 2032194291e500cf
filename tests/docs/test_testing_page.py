"""The examples of docs/testing.md are tests, and pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT


def test_the_examples_of_the_testing_page_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"(?s)```python\n(.*?)```", (ROOT / "docs/testing.md").read_text())
    program = tmp_path / "test_examples.py"
    program.write_text("\n".join(["import eosdb, pytest", *blocks]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
