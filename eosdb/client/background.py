"""A thread that does a client's work in the background, and ends with the client."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from eosdb.model import threads


class Background:
    """Calls `step`, a method, again and again without keeping its object alive.

    A step returns the ms until the next one; None ends the thread. Raises StorageError when there is no
    thread to be had.
    """

    def __init__(self, name: str, step: Callable[[], int | None]) -> None:
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.WeakMethod(step), self._stopped, self._woken),
            name=name,
            daemon=True,
        )
        with threads.needed(name):
            self._thread.start()

    def wake(self) -> None:
        """Take the next step now."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread and wait for it; not to be called under a lock that a step takes."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _run(
    step: weakref.WeakMethod[Callable[[], int | None]],
    stopped: threading.Event,
    woken: threading.Event,
) -> None:
    """Holds no reference while it sleeps, so that a forgotten client can go."""
    while (found := step()) is not None:
        woken.clear()
        if stopped.is_set():
            return
        wait = found()
        if wait is None:
            return
        del found
        woken.wait(wait / 1000)
