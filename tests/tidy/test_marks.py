"""Tests say by marks what they do, those without one are quick, and what is skipped says what it needs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.marks import MARKS
from tests.programs import ended
from tests.tidy.tree import ROOT

_MARKS = """
import os, subprocess, sys, threading, time
import pytest
from tests import marks

marks.LIMIT_S = 0.02

def compute():
    until = time.process_time() + 5 * marks.LIMIT_S * marks.slowness()
    while time.process_time() < until:
        pass

@pytest.fixture
def child():
    subprocess.run([sys.executable, "-c", ""])

def forks():
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)

def test_red_fork(): forks()
def test_red_program(child): pass
def test_red_shell(): os.system("true")
def test_red_computing(): compute()
def test_red_thread(): (thread := threading.Thread(target=compute)).start(), thread.join()

@pytest.mark.process
def test_green_fork(): forks()
@pytest.mark.slow
def test_green_computing(): compute()
def test_green_waiting(): time.sleep(0.2)

def test_green_on_a_slow_machine():
    compute()
    marks.UNIT_S /= 100  # Of a machine that is as much faster than this one.
"""
_SKIPS = """
import pytest

def test_of_a_package(): raise ModuleNotFoundError("away", name="pyarrow.dataset")
def test_of_a_package_that_nobody_declared(): import no_such_module
def test_that_says_what_it_needs(): pytest.skip("NO JAVA")
"""
_WITHOUT_JAVA = 'import pytest; pytest.skip("NO JAVA", allow_module_level=True)'
_WITHOUT_A_PACKAGE = 'raise ModuleNotFoundError("away", name="confluent_kafka")'


def run(folder: Path, *options: str) -> str:
    """What pytest prints of the tests in the folder, with the rules of this suite. It looks at no folder
    beside, which another test may have left."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-rA"]
    command += ["--rootdir", str(folder), "--confcutdir", str(folder)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    return ended([*command, *options, str(folder)], cwd=ROOT).stdout


def outcomes(said: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for outcome, test in re.findall(r"^([A-Z]+) .*::(\w+)", said, re.MULTILINE):
        found.setdefault(outcome, set()).add(test)
    return found


@pytest.mark.process
def test_a_fast_test_neither_starts_a_process_nor_computes_for_long(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_planted.py").write_text(_MARKS)
    said = run(tmp_path, "--fast")
    tests = set(re.findall(r"(?<!process\n)(?<!slow\n)def (test_\w+)", _MARKS))
    assert outcomes(said) == {
        "PASSED": tests,
        "ERROR": {test for test in tests if test.startswith("test_red")},
    }, said
    assert "test_red_fork starts a process (os.fork): mark it with pytest.mark.process" in said
    # The short summary at the end says it again where it is not cut to the terminal's width, as in CI.
    slow = set(re.findall(r"(test_\w+) took \S+ s of CPU time, more than", said))
    assert slow == {"test_red_computing", "test_red_thread"}


@pytest.mark.process
@pytest.mark.parametrize("everything_is_installed", [False, True])
def test_what_needs_a_package_says_so_and_fails_where_everything_is_installed(
    tmp_path: Path, everything_is_installed: bool
) -> None:
    (tmp_path / "test_file.py").write_text(_WITHOUT_A_PACKAGE)
    (tmp_path / "test_without_java.py").write_text(_WITHOUT_JAVA)
    (tmp_path / "test_tests.py").write_text(_SKIPS)
    said = run(tmp_path, *(["--no-skips"] if everything_is_installed else []))
    assert "needs confluent-kafka: pip install -e '.[kafka]'" in said
    assert "needs pyarrow: pip install -e '.[spark]'" in said
    skipped, failed = (4, 1) if not everything_is_installed else (0, 5)
    summary = {word: int(n) for n, word in re.findall(r"(\d+) (skipped|failed)", said)}
    assert (summary.get("skipped", 0), summary["failed"]) == (skipped, failed), said


@pytest.mark.process
def test_the_fast_ones_are_those_without_a_mark_and_no_other_module_is_imported(
    tmp_path: Path,
) -> None:
    tests = [f"@pytest.mark.{mark}\ndef test_{mark}(): pass" for mark in sorted(MARKS)]
    tests += ["@pytest.mark.both_roads\ndef test_fast(): pass"]
    (tmp_path / "test_some.py").write_text("\n".join(["import pytest", *tests]))
    for number, marks in enumerate(
        ("mark.slow", "[mark.both_roads, mark.crash]", "[\nmark.spark,\n]")
    ):
        text = f"from pytest import mark\n\npytestmark = {marks}\n\nraise ImportError"
        (tmp_path / f"test_none_{number}.py").write_text(text)
    (tmp_path / "test_of_a_folder").mkdir()
    assert f"2 passed, {len(MARKS)} deselected" in run(tmp_path, "--fast")
