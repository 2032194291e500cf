"""Handlers of Ctrl-C and SIGTERM, for all commands and for those that run until they are stopped.

A KeyboardInterrupt during an import prints an unrelated traceback, or is lost in a callback of the import
system. So before and after the command itself, Ctrl-C exits at once. What opening a file needs, producer
and consumer too, is imported before the command runs, and not where a signal may raise and other threads
may fork (decisions/0018, decisions/0019).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as in shells: 128 plus the number of the signal."""


def leave(*_: object) -> NoReturn:
    """Exit at once; for Ctrl-C while there is nothing to clean up."""
    os._exit(INTERRUPTED)


def leaving_on_interrupt() -> None:
    """Ctrl-C ends the process at once, unless the caller ignores it (`nohup`, a shell's `&`)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def raising_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, so that the command cleans up."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` in the main thread on the first SIGTERM or SIGINT; a second one has its default
    action."""
    before = {which: signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for which, handler in before.items():
            signal.signal(which, handler)

    def stop_once(*_: object) -> None:
        restore()
        stop()

    for which in before:
        signal.signal(which, stop_once)
    try:
        yield
    finally:
        restore()
