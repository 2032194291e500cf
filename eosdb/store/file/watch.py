"""Waits for writes to a file by kernel notifications, which costs no CPU.

On a system without them it polls. The WAL is written before a commit ends, so a notification means only
that there may be a new commit.

A watch outlives the wait, because the kernel takes 5 to 17 ms to end one: that would be most of the time
from a `send` to another process's `poll`. The next wait for the same file takes it over.
"""

from __future__ import annotations

import os
import select
from typing import Final

from eosdb.model.closing import Closeable
from eosdb.store.file.open_files import identity_of
from eosdb.system.road import road

_SLEEP_MS: Final = 10
"""The polling interval without kernel notifications."""
_MOST_IDLE: Final = 16
"""Of the watches that no wait uses, a process keeps so many: a user often has 128."""
_idle: Final[list[Watch]] = []


class Watch(Closeable):
    """A watch of the file at `path`, for one wait at a time. `close` leaves it to the next wait."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        # Looked up first: if the file is replaced between the two calls, the watch is not taken over.
        self._identity: Final = identity_of(path)
        self._notices: Final = road.watched(path)
        self._poll: Final = select.poll()
        if self._notices is not None:
            self._poll.register(self._notices, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the file is written. Returns False after the time-out, or earlier if it only polls."""
        if self._notices is None:
            self._poll.poll(min(timeout_ms, _SLEEP_MS))
            return False
        if not self._poll.poll(timeout_ms):
            return False
        self._notices.take()
        return True

    def is_in_place(self) -> bool:
        """Whether it still watches the file of this name, without any earlier notice."""
        if self._notices is None or not self._notices.take():
            return False
        return identity_of(self.path) == self._identity

    def close(self) -> None:
        if self._notices is not None:
            _idle.append(self)
        for oldest in _idle[:-_MOST_IDLE]:
            _end(oldest)

    def end(self) -> None:
        if self._notices is not None:
            self._notices.close()


def watch(path: str) -> Watch:
    """Return a watch of the file at `path`: an idle one, or a new one."""
    for idle in _idle_at(path):
        if _took(idle):
            if idle.is_in_place():
                return idle
            idle.end()
    return Watch(path)


def end_idle(path: str) -> None:
    """End the watches of the file that no wait uses."""
    for idle in _idle_at(path):
        _end(idle)


def _idle_at(path: str) -> list[Watch]:
    return [idle for idle in list(_idle) if idle.path == path]


def _end(idle: Watch) -> None:
    if _took(idle):
        idle.end()


def _took(idle: Watch) -> bool:
    """Whether this thread, and no other, has taken the watch."""
    try:
        _idle.remove(idle)
    except ValueError:
        return False
    return True


def _end_after_fork() -> None:
    """A notice goes to one reader only: a child must not take its parent's."""
    while _idle:
        _idle.pop().end()


os.register_at_fork(after_in_child=_end_after_fork)
