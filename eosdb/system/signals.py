"""Ctrl-C and SIGTERM stop long-running work after the current record."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

_STDERR: Final = 2
_SAID: Final = b"\nFinishing what is in hand, then stopping. Ctrl-C again aborts it now.\n"


class Stop:
    """An event that a signal handler can set. Unlike `threading.Event`, it takes no lock that the
    interrupted code may hold."""

    def __init__(self) -> None:
        self._requests: Final[SimpleQueue[None]] = SimpleQueue()

    def request(self) -> None:
        """Make `wait` return."""
        self._requests.put(None)

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait for a request, or until `is_over()`. Wakes once a second, because a signal just before the
        wait, or in another thread, does not end CPython's wait."""
        while not is_over():
            with contextlib.suppress(Empty):
                self._requests.get(timeout=1)
                return


def is_of_a_signal(error: BaseException) -> bool:
    """Whether a signal handler of the program raised the error, such as a time limit of Celery or RQ. Like
    KeyboardInterrupt it has no other cause here, and must reach the caller."""
    if threading.current_thread() is not threading.main_thread():
        return False
    codes, place = (
        {_code(signal.getsignal(each)) for each in signal.valid_signals()},
        error.__traceback__,
    )
    while place is not None:
        if place.tb_frame.f_code in codes:
            return True
        place = place.tb_next
    return False


def _code(handler: Any) -> object:
    while isinstance(handler, partial):
        handler = handler.func
    if inspect.isroutine(handler):
        return getattr(handler, "__code__", handler)
    return getattr(type(handler).__call__, "__code__", handler) if callable(handler) else None


@contextlib.contextmanager
def stopped_by_signals(
    stop: Callable[[], object], failed: Callable[[Exception, signal.Signals], object] | None = None
) -> Iterator[None]:
    """During the block, call `stop` on SIGTERM, on SIGHUP if it would end the process, and on the first
    SIGINT, which prints a message. A second SIGINT has its usual effect, and an ignored one (a shell's `&`)
    stays ignored. Does nothing outside of the main thread, where Python allows no handlers.

    With `failed`: if the block raises after a signal, call `failed` with the error and the signal, and send
    the signal again. Otherwise a program that repeats a failed block would never end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watched = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        watched.append(signal.SIGHUP)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        watched.append(signal.SIGINT)
    before = {which: signal.getsignal(which) for which in watched}
    received: list[signal.Signals] = []
    error: Exception | None = None

    def terminate(number: int, _: object) -> None:
        received.append(signal.Signals(number))
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        stop()

    def interrupt(number: int, frame: object) -> None:
        terminate(number, frame)
        # Writes directly, because the interrupted code may hold the lock of `logging`.
        with contextlib.suppress(OSError):
            os.write(_STDERR, _SAID)

    for which in watched:
        signal.signal(which, interrupt if which is signal.SIGINT else terminate)
    try:
        yield
    except Exception as raised:
        error = raised
        raise
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
        if failed and error and received:
            failed(error, received[0])
            signal.raise_signal(received[0])
