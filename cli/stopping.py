"""How a command that runs until somebody stops it is stopped."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


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
