"""The main job, on the first flights of the real data: killed programs, Spark, and everybody's numbers."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.spark import small
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip(
        "NO JAVA: the demo, which runs Spark, is not tested here; apt-get install default-jre-headless",
        allow_module_level=True,
    )


def test_the_demo_checks_everything_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "delays_by_hour.parquet/batch=9").mkdir(parents=True)
    (out / "delays_by_hour.parquet/batch=9/earlier.parquet").write_text("of an earlier run")
    (out / "dear.txt").write_text("the folder may be somebody's")
    # tests/spark kills a query in more ways.
    wanted = ["--rows", "20000", "--kills", "1", "--keep", str(out)]
    done = ended(
        [sys.executable, str(ROOT / "demo/flights.py"), *wanted],
        env=os.environ | small.environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    assert done.stdout.count("ok") >= 33
    for killed in ("the ingest", "late_flights.py", "Spark driver 1"):
        assert f"killed {killed}" in done.stdout
    assert done.stderr == ""
    assert [line[:3] for line in done.stdout.splitlines() if line[1:3] == "/7"] == [
        f"{number}/7" for number in range(1, 8)
    ]
    marks = re.findall("[a-zA-Z_]+ killed", (out / "timeline.svg").read_text(encoding="utf-8"))
    assert marks == ["ingest killed"] * 2 + ["late_flights killed"] * 2 + ["Spark killed"]
    command = next(line for line in done.stdout.splitlines() if " sql " in line)
    queried = ended(command, shell=True, check=True)
    assert queried.stdout.startswith("carrier")
    for reader in ("by the data source", "by its JDBC view", "by pandas", "by Spark"):
        assert reader in done.stdout
    for left in ("flights.db", "delays.svg", "timeline.svg", "dear.txt"):
        assert (out / left).stat().st_size > 0
