"""How commands are stopped: any by Ctrl-C, and one that runs until somebody stops it.

KeyboardInterrupt while modules are imported is a traceback of nothing the user knows, or gets lost in a
callback of the import system. So Ctrl-C ends the process at once before a command runs and
after it. What opening a file needs, producer and consumer too, is therefore imported together before the
command runs, and not where a signal may raise and other threads may fork (decisions/0018, decisions/0019).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells have it: 128 and the number of the signal."""


def leave(*_: object) -> NoReturn:
    """Ctrl-C when there is nothing to clean up."""
    os._exit(INTERRUPTED)


def leaving_on_interrupt() -> None:
    """Ctrl-C ends the process at once, unless the caller ignores it (`nohup`, a shell's `&`)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def raising_on_interrupt() -> None:
    """Ctrl-C raises KeyboardInterrupt again: something will have to be cleaned up."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` in the main thread; a second one ends the process as ever."""
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
