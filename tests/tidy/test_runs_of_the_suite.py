"""What a run of the suite shows: the cost of each test, the seeds, and the first failure at its end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import durations
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

PLANTED = """
import pytest

def test_first():
    raise ValueError("the first one")

@pytest.mark.parametrize("number", range(3))
def test_later(number):
    assert number == 7, "line\\n" * 100

def test_seeds(seeds):
    raise AssertionError(seeds)

def test_that_costs():
    sum(i * i for i in range(2_000_000))
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_planted.py").write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *options]
    command += ["--rootdir", str(folder), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = ended([*command, str(folder)], cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("in_ci", [False, True])
def test_the_end_of_the_first_failure_is_on_the_last_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_ci: bool
) -> None:
    monkeypatch.setenv("CI", "1") if in_ci else monkeypatch.delenv("CI", raising=False)
    last = "\n".join(run(tmp_path).splitlines()[-40:])
    assert "the first of 5 failures: test_planted.py::test_first" in last
    assert "ValueError: the first one" in last


def test_each_run_has_a_fresh_seed_which_repeats_it(tmp_path: Path) -> None:
    runs = [run(tmp_path, "-k", "seeds", *workers) for workers in ((), ("-n", "2"))]
    seeds = [re.findall(r"AssertionError: \[(\d+)\]", said)[0] for said in runs]
    assert seeds[0] != seeds[1]
    for seed, said in zip(seeds, runs, strict=True):
        assert f"--seed {seed}" in said, "in the output of the test"
        assert f"AssertionError: [{seed}, {int(seed) + 1}]" in run(
            tmp_path, "-k", "seeds", "--seed", seed, "--seeds", "2"
        )


def test_the_cost_of_each_test_is_in_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    run(tmp_path, "--junitxml", str(report))
    found = {each.name: each for each in durations.read(report)}
    costly = found["test_planted.py::test_that_costs"]
    assert costly.cpu_s == max(each.cpu_s for each in found.values()) > 0
    page = durations.table(found.values())
    assert "| **all** | 6 |" in page
    assert f"| {costly.wall_s:.1f} | {costly.cpu_s:.1f} | `{costly.name}` |" in page
