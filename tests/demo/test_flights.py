"""The main job, on the first flights of the real data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT


def test_the_demo_checks_everything_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dear.txt").write_text("the folder may be somebody's")
    command = [sys.executable, str(ROOT / "demo/flights.py"), "--rows", "40000", "--keep"]
    done = subprocess.run(
        [*command, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    assert done.stdout.count("ok") >= 15
    assert "killed the ingest" in done.stdout
    assert (tmp_path / "out/flights.db").exists()
    assert (tmp_path / "out/dear.txt").exists()
