"""Waiting requests: one thread watches the file for all of them, and does due work of the coordinator.

A long poll or a join costs nothing while it waits. After a commit of any process the watcher checks the
condition of each waiting request once, and wakes those whose condition holds (decisions/0028).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from eosdb.broker.broker import Broker
from eosdb.broker.core import Core
from eosdb.broker.reading import Listener
from eosdb.coordinator.authorizer import Authorizer
from eosdb.errors import DatabaseClosedError, EosdbError
from eosdb.model.clock import SystemClock
from eosdb.model.threads import Thread

Look = Callable[[Broker], bool]
"""The condition of a waiting request; it is called with a broker that may read everything."""
REAL_TIME: Final = SystemClock()
"""The clock of time-outs and pauses, even if the file has another clock."""
Shared = dict[Any, Any]
"""What the requests woken by one commit share: the first to read something stores it here for the
others."""
_PAUSE_MS: Final = 1_000
"""The longest time between two looks at the clock."""
_MANUAL_PAUSE_MS: Final = 5
"""The longest time between two looks at a clock that a test moves."""
_ROUND_MS: Final = 60_000
"""The interval of housekeeping while nobody writes."""
_BETWEEN_DUE_MS: Final = 100
"""The interval between checks for due work: other processes do it with their writes."""

_GONE: Final = getattr(select, "POLLRDHUP", 0)
"""The event of a half-closed connection. `poll` reports hang-ups and errors in any case."""


class _ParkedWaiter:
    __slots__ = ("client", "is_gone", "look", "shared", "woken")

    def __init__(self, look: Look, client: socket.socket) -> None:
        self.look, self.client = look, client
        self.is_gone = False
        self.shared: Shared = {}
        self.woken = threading.Event()


class Parking:
    """The requests that wait for a commit. Threads may share it; `close` wakes all requests."""

    def __init__(self, core: Core) -> None:
        self._core = core
        everybody = replace(core, clock=REAL_TIME, authorizer=Authorizer("", super_users=""))
        self._broker = Broker(everybody)
        self._pause_ms = _PAUSE_MS if isinstance(core.clock, SystemClock) else _MANUAL_PAUSE_MS
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._waiters: set[_ParkedWaiter] = set()
        self._arrived = threading.Event()
        self._due = self._due_asked_ms = 0
        self._round_ms = REAL_TIME.monotonic_ms()
        self.is_closed = False
        self._thread = Thread("serving", "eosdb-wire-watch", self._watch)
        self._thread.start()

    def wait(self, look: Look, timeout_ms: int, client: socket.socket) -> Shared | None:
        """Wait until `look` may be true; returns None after the time-out (real time). Raises
        ConnectionError if the client disconnects meanwhile."""
        waiter = _ParkedWaiter(look, client)
        with self._lock:
            self._waiters.add(waiter)
        try:
            self._arrived.set()
            # Check again, because a commit may have come since the caller's check. The lock allows one
            # check at a time, because concurrent checks would each open a connection to the file.
            with self._looking:
                may_be = self.is_closed or look(self._broker)
            may_be = may_be or waiter.woken.wait(timeout_ms / 1000)
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        if waiter.is_gone:
            raise ConnectionResetError("the client has gone while its request waited")
        return waiter.shared if may_be else None

    def close(self) -> None:
        """Wake all requests, and end the watcher thread."""
        self.is_closed = True
        self._arrived.set()
        self._wake(everybody=True)
        self._thread.join()

    def _watch(self) -> None:
        """Wake requests whose condition holds, and do due work, until closed."""
        with Listener(self._core.store, REAL_TIME) as listener:
            looked, clients_seen_ms = -1, 0
            while not self.is_closed:
                try:
                    if self._waiters:
                        version = listener.wait(looked, self._until_due(), lambda: self.is_closed)
                        if version != looked:
                            looked = version
                            self._wake()
                    else:
                        self._arrived.wait(self._until_due() / 1_000)
                        self._arrived.clear()
                    now = REAL_TIME.monotonic_ms()
                    if now - clients_seen_ms >= _PAUSE_MS:
                        clients_seen_ms = now
                        self._wake_of_gone_clients()
                    if self._is_something_due():
                        self._core.coordinator.do_what_is_due()
                        self._due_asked_ms = 0
                except DatabaseClosedError:
                    return
                except (EosdbError, OSError, MemoryError):
                    # The file is locked, the disk is full, or no memory is left: pause, then try again.
                    REAL_TIME.sleep_ms(_BETWEEN_DUE_MS)

    def _is_something_due(self) -> bool:
        now = REAL_TIME.monotonic_ms()
        if now - self._round_ms >= _ROUND_MS:  # Housekeeping is due: it needs a write.
            self._round_ms = now
            return True
        return self._core.clock.time_ms() >= self._due

    def _until_due(self) -> int:
        """The time (ms, real) until something may be due."""
        now = REAL_TIME.monotonic_ms()
        if now - self._due_asked_ms >= _BETWEEN_DUE_MS:
            self._due, self._due_asked_ms = self._core.coordinator.next_due(), now
        left = self._due - self._core.clock.time_ms()
        return max(1, min(left, self._pause_ms))

    def _wake(self, *, everybody: bool = False) -> None:
        with self._lock:
            waiters = [waiter for waiter in self._waiters if not waiter.woken.is_set()]
        shared: Shared = {}
        seen: dict[Look, bool] = {}  # Each distinct condition is checked once.
        for waiter in waiters:
            if waiter.look not in seen:
                seen[waiter.look] = everybody or waiter.look(self._broker)
            if seen[waiter.look]:
                waiter.shared = shared
                waiter.woken.set()

    def _wake_of_gone_clients(self) -> None:
        """Wake requests whose clients have disconnected, so that they hold no thread until their
        time-out."""
        poll = select.poll()
        with self._lock:
            waiting = {
                fd: waiter for waiter in self._waiters if (fd := waiter.client.fileno()) >= 0
            }
        for descriptor in waiting:
            poll.register(descriptor, _GONE)
        for descriptor, _ in poll.poll(0):
            waiting[descriptor].is_gone = True
            waiting[descriptor].woken.set()
