"""A test that hangs without returning to Python ends with its process, after the stacks of all threads.

pytest's `faulthandler_timeout` does this, too, and starts a thread for each test. On a busy machine that is
more than two milliseconds of waiting a test, so here one timer serves many tests.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

SETTING: Final = "hanging_timeout"
"""Seconds for a test's set-up and call, and for the end of its fixtures, which has no other limit."""
RENEWED: Final = 10
"""The timer is renewed after this part of its time, so it may end a test as much earlier."""
FRAMES: Final = 5
"""The innermost ones of each thread are shown again at the end, where nobody has to look for them."""
_OUTPUT: Final = pytest.StashKey[int]()
_FOLDER: Final = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
"""Each of xdist's workers has a file there for its stacks."""


class Timer:
    """The process's timer: which test it was set for does not matter, only that it is set."""

    def __init__(self) -> None:
        self.renewed_s = float("-inf")

    def renew(self, config: pytest.Config) -> None:
        limit_s, now_s = float(config.getini(SETTING)), time.monotonic()
        if limit_s and now_s - self.renewed_s > limit_s / RENEWED:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=config.stash[_OUTPUT])
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
    if path := getattr(config, "workerinput", {}).get(SETTING):
        config.stash[_OUTPUT] = os.open(path, os.O_CREAT | os.O_WRONLY)
    else:
        config.stash[_OUTPUT] = os.dup(2)  # Not yet captured.


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    stash = node.config.stash
    if _FOLDER not in stash:
        stash[_FOLDER] = tempfile.TemporaryDirectory()
    node.workerinput[SETTING] = os.path.join(stash[_FOLDER].name, node.gateway.id)


def stacks(config: pytest.Config) -> str:
    """The innermost frames of each thread of the workers that hung."""
    if _FOLDER not in config.stash:
        return ""
    texts = (path.read_text() for path in sorted(Path(config.stash[_FOLDER].name).iterdir()))
    threads = [thread.strip() for text in texts for thread in text.split("\n\n")]
    return "\n".join(line for each in threads for line in each.splitlines()[: FRAMES + 1])


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
