"""The suite may be started by `nohup`, or in the background of a shell: what it starts hears signals."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

_TEST = """
import signal, subprocess, sys, pytest

@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_child_is_ended_by_it(number):
    code = f"import signal, os, time; os.kill(os.getpid(), {int(number)}); time.sleep(600)"
    child = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, timeout=300)
    assert child.returncode == -number
"""


def _ignore() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_children_do_not_inherit_what_the_suite_ignores(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_signals.py").write_text(_TEST)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), *workers]
    options += ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = ended(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT,
        timeout=600,
        preexec_fn=_ignore,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
