"""A test that never ends, wherever it waits, is reported by name, and the others run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

_TESTS = """
import ctypes, pytest

@pytest.fixture
def hanging():
    yield
    library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)

def test_that_hangs(hanging):
    raise AssertionError("its fixtures have no time limit of pytest's any more")

@pytest.mark.parametrize("number", range(8))
def test_something_else(number):
    pass
"""


def test_its_stacks_are_shown_and_the_others_run(tmp_path: Path) -> None:
    """Even if what hangs never returns to Python, after a failure."""
    (tmp_path / "test_hanging.py").write_text(_TESTS)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-n", "1"]
    options += ["-p", "tests.conftest", "-p", "no:cacheprovider", "-o", "hanging_timeout=2"]
    done = ended([sys.executable, "-m", "pytest", *options, str(tmp_path)], cwd=ROOT, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 8 passed" in done.stdout
    assert "crashed while running 'test_hanging.py::test_that_hangs'" in done.stdout
    assert "in hanging\n" in done.stdout.rpartition("the first of 2 failures")[2]
