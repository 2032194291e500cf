"""Starting threads, which the system may refuse to a process or user that has too many, or no memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec

from eosdb.errors import StorageError

P = ParamSpec("P")

_LOOKS: Final = 100
_LOOK_S: Final = 0.05
"""How often, and for how long, a starting thread is waited for: by looks, for a process that was stopped in
between has waited for one look only."""


class Thread(threading.Thread):
    """A daemon thread for `what`, which has begun when `start` returns.

    Python's own `start` waits without a limit for a thread that ends before its first step, as one does
    that finds no memory for it.
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
        """Raises StorageError if the system refuses the thread, or the thread does not begin. Nothing of it
        is done then, later neither."""
        with needed(self._what):
            super().start()
        for _ in range(_LOOKS):
            if self._begun.acquire(timeout=_LOOK_S):
                return
        if self._claim.acquire(blocking=False):
            raise StorageError(
                f"no thread can be started for {self._what}: it does not begin, as one does not for which "
                "there is no memory; free some and try again"
            )

    def run(self) -> None:
        if self._claim.acquire(blocking=False):
            self._begun.release()
            super().run()


class _NotAwaited(threading.Event):
    """Takes the place of the event that Python's `start` waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@contextmanager
def needed(what: str) -> Iterator[None]:
    """A context for starting threads: raises StorageError if the system refuses."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        raise StorageError(
            f"no thread can be started for {what}: this process, or its user, has as many as the system "
            "allows (ulimit -u, or the pids limit of the container); end some and try again"
        ) from error
