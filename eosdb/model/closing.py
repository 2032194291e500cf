"""Closing: at the end of a `with` block, and again after an interruption until it is done.

A signal may raise between any two steps of Python (decisions/0018), and memory may run out. What is still
to be done is a list, from which a step is taken only when it has been done: whoever is interrupted closes
again. So a step can be repeated, also when it was cut off in the middle.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Self


class Closeable(ABC):
    """A context manager that closes itself when the block ends."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Closing:
    """The steps by which one object is closed, in their order."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._left: Final = list(steps)
        self._failure: Exception | None = None
        self._lock = threading.RLock()

    def run(self) -> None:
        """Do what is left. A step that fails counts as done; the others are done all the same, and its
        error is raised then. Returns at once while another thread is at it."""
        try:
            # decisions/0018: inside `try`, and released by one call into C.
            if not self._lock.acquire(blocking=False):
                return
            while self._left:
                try:
                    self._left[0]()
                except MemoryError:
                    raise
                except Exception as error:
                    self._failure = self._failure or error
                del self._left[0]
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
        finally:
            try:  # noqa: SIM105 - decisions/0018: a call into C comes first.
                self._lock.release()
            except RuntimeError:
                pass  # Another thread is at it.
