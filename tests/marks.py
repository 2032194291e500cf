"""Marks say what a test does; a test without one that starts a process fails.

`make test-fast` runs what has no mark (`--fast`). There a test that computes for long fails, too, so it
stays fast. The whole suite does not time tests, because machines are slow at times. Processes are noticed
by audit events of Python: a test that starts a process in C, or by `multiprocessing` with "spawn", must set
the mark.
"""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from eosdb.system import posix_locks

MARKS: Final = frozenset({"crash", "process", "simulation", "slow", "spark"})
"""Described in pyproject.toml."""
LIMIT_S: Final = 2.0
"""Of CPU time, in all threads of the test's process, on the machine that UNIT_S was measured on."""
UNIT_S: Final = 0.013
STARTS: Final = frozenset(
    {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
)
OF_EOSDB: Final = frozenset({"mount", "ps", posix_locks.__file__})
"""Programs that the portable road asks by itself."""


class Watch:
    """What the current test has done, with the set-up and end of its fixtures."""

    def __init__(self) -> None:
        self.is_timed = False
        self.process: str | None = None
        self.began_s = 0.0

    def begin(self) -> None:
        self.process = None
        self.began_s = time.process_time()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook."""
        if event == "subprocess.Popen" and OF_EOSDB.intersection(arguments[1]):
            return
        if event in STARTS:
            self.process = f"{event}{arguments[:2]!r}" if arguments else event

    def complaint(self) -> str | None:
        """Why the test needs a mark."""
        if self.process is not None:
            return f"starts a process ({self.process}): mark it with pytest.mark.process"
        if not self.is_timed:
            return None
        used_s = time.process_time() - self.began_s
        if used_s <= LIMIT_S or used_s <= (limit_s := LIMIT_S * slowness()):
            return None
        return (
            f"took {used_s:.1f} s of CPU time, more than {limit_s:.1f} s ({LIMIT_S:g} s at the speed that "
            "this machine has now): make it cheaper, or mark it with pytest.mark.slow"
        )


def slowness() -> float:
    """How many times as long as on the machine of UNIT_S something takes now, and 1 if that is shorter."""

    def unit_s() -> float:
        began_s = time.thread_time()
        functools.reduce(lambda total, i: total ^ hash(str(i)), range(100_000), 0)
        return time.thread_time() - began_s

    return max(1.0, *(unit_s() / UNIT_S for _ in range(5)))


_WATCH: Final = Watch()
_OF_MODULE: Final = re.compile(r"(?ms)^pytestmark = (\[.*?\]$|[^\n]*)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only the tests without a mark")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_WATCH.hear)
    if config.option.fast:
        _WATCH.is_timed = True
        config.option.markexpr = f"not ({' or '.join(sorted(MARKS))})"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module of which all tests would be deselected is not even imported."""
    if config.option.fast and collection_path.match("test_*.py"):
        found = _OF_MODULE.search(collection_path.read_text(encoding="utf-8"))
        if found and not MARKS.isdisjoint(re.findall(r"mark\.(\w+)", found[1])):
            return True
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    _WATCH.begin()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    result = yield
    if MARKS.isdisjoint(mark.name for mark in item.iter_markers()) and (
        complaint := _WATCH.complaint()
    ):
        pytest.fail(f"{item.name} {complaint} (tests/marks.py)", pytrace=False)
    return result
