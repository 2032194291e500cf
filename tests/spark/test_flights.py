"""The flights through Spark and back, on the first of the real data: the numbers are those of pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.crash.children import environment
from tests.tidy.tree import ROOT


def test_the_pipeline_gives_the_numbers_of_pandas(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "demo/spark_flights.py",
            "--rows",
            "30000",
            "--keep",
            str(tmp_path / "out"),
        ],
        cwd=ROOT,
        env=environment(SPARK_LOCAL_IP="127.0.0.1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    assert done.stdout.count("ok ") == 4
