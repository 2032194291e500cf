"""A thread that does a client's work in the background, and ends with the client."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final

from eosdb.model.threads import Thread

_PAUSE_MS: Final = 100
"""The time until the next call when no memory is left."""


class Background:
    """Calls the method `step` again and again without keeping its object alive. `step` returns the ms
    until its next call; None ends the thread. Raises StorageError if no thread can be started."""

    def __init__(self, name: str, step: Callable[[], int | None]) -> None:
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = Thread(
            name, name, _run, weakref.WeakMethod(step), self._stopped, self._woken
        )
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """End the thread and wait for it. Must not be called under a lock that `step` takes."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _run(
    step: weakref.WeakMethod[Callable[[], int | None]],
    stopped: threading.Event,
    woken: threading.Event,
) -> None:
    """Run the thread. While asleep it holds no reference to the client, so that can be collected."""
    while (method := step()) is not None:
        woken.clear()
        if stopped.is_set():
            return
        try:
            wait = method()
        except MemoryError:  # Continue: the client starts no other thread.
            wait = _PAUSE_MS
        if wait is None:
            return
        del method
        woken.wait(wait / 1000)
