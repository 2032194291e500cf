"""A test that hangs without returning to Python ends with its process, after the stacks of all threads.

pytest's `faulthandler_timeout` does this, too, and starts a thread for each test. On a busy machine that is
more than two milliseconds of waiting a test, so here one timer serves many tests.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Generator
from typing import Final

import pytest

SETTING: Final = "hanging_timeout"
"""Seconds for a test's set-up and call, and for the end of its fixtures, which has no other limit."""
RENEWED: Final = 10
"""The timer is renewed after this part of its time, so it may end a test as much earlier."""
_STDERR: Final = pytest.StashKey[int]()


class Timer:
    """The process's timer: which test it was set for does not matter, only that it is set."""

    def __init__(self) -> None:
        self.renewed_s = float("-inf")

    def renew(self, config: pytest.Config) -> None:
        limit_s, now_s = float(config.getini(SETTING)), time.monotonic()
        if limit_s and now_s - self.renewed_s > limit_s / RENEWED:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=config.stash[_STDERR])
            self.renewed_s = now_s

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.renewed_s = float("-inf")


_TIMER: Final = Timer()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SETTING, "seconds after which a test that hangs ends with its process", default="0"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # Not yet captured.


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    _TIMER.renew(item.config)
    try:
        return (yield)
    finally:
        if nextitem is None:
            _TIMER.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    _TIMER.renew(item.config)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact() -> None:
    """pytest has cancelled the timer, and waits for the test's fixtures without its own time limit."""
    _TIMER.stop()
