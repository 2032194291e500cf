"""Closes an object in steps that can be interrupted and repeated.

A signal may raise between any two steps of Python (decisions/0018), and memory may run out. A step leaves
the list only when it is done. After an interruption the caller closes again, so each step must be
repeatable, even if it was interrupted midway.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Self

from eosdb.errors import EosdbError
from eosdb.system.signals import is_of_a_signal


class Closeable(ABC):
    """A context manager that closes itself when the block ends."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self.close()
        except EosdbError as failure:
            put_behind(error, failure)


def put_behind(error: BaseException | None, failure: EosdbError) -> None:
    """Raise `failure`, the error of closing. If the block raised `error`, only add a note to it."""
    if error is None:
        raise failure
    error.add_note(f"closing failed, too: {type(failure).__name__}: {failure}")


class Closing:
    """The steps that close one object, in order."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._left: Final = list(steps)
        self._failure: Exception | None = None
        self._lock = threading.RLock()

    def run(self) -> None:
        """Run the remaining steps. If a step fails, the others still run, and then its error is raised; the
        step is not repeated. Returns at once if another thread is running the steps."""
        try:
            # decisions/0018: acquire inside `try`, so that `finally` releases the lock after an interrupt.
            if not self._lock.acquire(blocking=False):
                return
            while self._left:
                try:
                    self._left[0]()
                except MemoryError:
                    raise
                except Exception as error:
                    if is_of_a_signal(error):
                        raise
                    self._failure = self._failure or error
                del self._left[0]
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
        finally:
            try:  # noqa: SIM105 - decisions/0018: the release must come first, before any interrupt.
                self._lock.release()
            except RuntimeError:
                pass  # This thread does not hold the lock.
