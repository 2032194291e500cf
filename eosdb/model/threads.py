"""Threads: starting one, which the system may refuse; adding one to anyio's pool; and finding the outcome
of a write that another thread may run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, ParamSpec

from eosdb.errors import StorageError

P = ParamSpec("P")

_LOOKS: Final = 100
_LOOK_S: Final = 0.05
"""`start` waits so often, and each time so long, for the thread to begin. The waits are short, because a
process that is stopped meanwhile uses up only one of them."""


class Thread(threading.Thread):
    """A daemon thread, which runs when `start` returns. `what` is its purpose, for error texts.

    Python's own `start` waits forever if the new thread runs out of memory before its first step.
    """

    def __init__(
        self,
        what: str,
        name: str,
        target: Callable[P, object],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        super().__init__(target=target, name=name, args=args, kwargs=kwargs, daemon=True)
        self._what = what
        self._started = _NotAwaited()
        self._begun, self._claim = threading.Lock(), threading.Lock()
        self._begun.acquire()

    def start(self) -> None:
        """Start the thread. Raises StorageError if the system refuses or the thread does not begin; then
        its target never runs."""
        with needed(self._what):
            super().start()
        for _ in range(_LOOKS):
            if self._begun.acquire(timeout=_LOOK_S):
                return
        if self._claim.acquire(blocking=False):
            raise StorageError(
                f"no thread can be started for {self._what}: it does not begin, perhaps for lack of "
                "memory; free memory and try again"
            )

    def run(self) -> None:
        if self._claim.acquire(blocking=False):
            self._begun.release()
            super().run()


class _NotAwaited(threading.Event):
    """Replaces the event that Python's `start` waits for, so that it does not wait."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Raises StorageError if the system refuses to start a thread inside the block."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        raise StorageError(
            f"no thread can be started for {what}: this process or its user has reached the limit (ulimit "
            "-u, or the container's pids limit); end some threads and try again"
        ) from error


class Fate:
    """Lets a caller find the outcome of its write, also after an interrupt."""

    __slots__ = ("ask",)

    def __init__(self) -> None:
        self.ask: Callable[[], Any] = lambda: None
        """Waits until the write is over. Returns its result; None if nothing of it is stored."""


def may_lend() -> bool:
    """Whether the process uses anyio, in whose thread pool FastAPI and Starlette call plain functions."""
    return "anyio" in sys.modules


def lend() -> Callable[[], object] | None:
    """Add a thread to the anyio pool that this thread belongs to. Returns a function that removes it again;
    None if this thread is in no pool.

    Waits for the event loop, so the caller must hold no lock. The returned function does not wait.
    """
    from anyio import from_thread

    with suppress(RuntimeError):  # The thread is in no pool, or the loop has ended.
        return from_thread.run_sync(_lent)
    return None


def _lent() -> Callable[[], object]:
    """Add a thread to the pool; returns a function that removes it. Runs in the event loop's thread."""
    import asyncio

    from anyio.to_thread import current_default_thread_limiter

    loop, limiter = asyncio.get_running_loop(), current_default_thread_limiter()
    limiter.total_tokens += 1

    def take_back() -> None:
        limiter.total_tokens -= 1

    def give_back() -> None:
        with suppress(RuntimeError):  # The loop and its pool have ended.
            loop.call_soon_threadsafe(take_back)

    return give_back
