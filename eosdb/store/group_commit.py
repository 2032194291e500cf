"""Group commit: requests of many threads share one SQLite commit.

The first thread that comes leads: it runs everything that has queued up meanwhile in one unit, each
request in a savepoint of its own, commits once, and hands out the results. Whoever comes during the
commit waits for the next round. A request's error undoes only its own writes; when the unit as a
whole fails (disk full, a failed commit) every request is run once more alone, so that each gets its
own answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from eosdb.errors import DatabaseLockedError, IllegalStateError
from eosdb.store.unit import Unit

T = TypeVar("T")

_ROUND_MAX: Final = 128


class Request:
    """A function to run in a unit, and what became of it."""

    __slots__ = ("done", "error", "function", "result", "sync")

    def __init__(self, function: Callable[[Unit], Any], sync: bool) -> None:
        self.function = function
        self.sync = sync
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


class GroupCommit:
    """Queues requests and lets one thread at a time run a round of them."""

    def __init__(
        self, run_round: Callable[[list[Request]], None], patience_ms: int = 30_000
    ) -> None:
        self._run_round = run_round
        self._patience_ms = patience_ms
        self._holder: int | None = None
        """The thread that holds the turn for a unit of its own."""
        self._leader: int | None = None
        """The thread that runs a round."""
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[Request] = deque()
        self._leading = False
        self._refusal: Callable[[], Exception] | None = None

    def submit(self, function: Callable[[Unit], T], sync: bool) -> T:
        """Run `function` in a unit and return its result once the unit is committed."""
        request = Request(function, sync)
        leading = False
        try:
            with self._changed:
                self._check_may_wait()
                self._queue.append(request)
                while self._leading and not request.done:
                    self._wait()
                if not request.done:
                    # In one line: an interrupt between the two would leave a leader that is none.
                    self._leading = leading = True
            while leading and not request.done:
                self._run_next_round(request)
        finally:
            if not request.done:
                self._withdraw(request)
            if leading:
                self._stop_leading()
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Lead for the time of the block without running any request: others wait.

        Raises DatabaseLockedError when another thread does so for too long, and IllegalStateError in the
        thread that already does.
        """
        leading = False
        try:
            with self._changed:
                self._check_may_wait()
                while self._leading:
                    self._wait()
                self._check_may_wait()
                self._leading = leading = True
                self._holder = threading.get_ident()
            yield
        finally:
            if leading:
                self._stop_leading()

    def _check_may_wait(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
        self.check_holds_nothing()

    def check_holds_nothing(self) -> None:
        """Raises IllegalStateError in the thread that holds the turn, or that is running a round."""
        if self._leader == threading.get_ident():
            raise IllegalStateError(
                "this thread is in the middle of a write, such as a rebuild that tells its progress; "
                "write, or close the database, when it is done"
            )
        if self._holder == threading.get_ident():
            raise IllegalStateError(
                "this thread is inside a block of db.begin(), which is the one writer; write with "
                "tx.publish, tx.commit_offsets and tx.connection, or after the block"
            )

    def _wait(self) -> None:
        """For whoever leads; not without end for one that holds the turn."""
        patience = None if self._holder is None else self._patience_ms / 1000
        if not self._changed.wait(patience) and self._holder is not None:
            raise DatabaseLockedError(
                f"a block of db.begin() in another thread has been writing for {self._patience_ms} ms; "
                "nothing was written, try again, make the block shorter, or raise lock_timeout_ms"
            )

    def end(self, refusal: Callable[[], Exception]) -> None:
        """Return when everything that has come is done; whoever comes now gets `refusal()`."""
        with self._changed:
            self._refusal = refusal
            while self._leading or self._queue:
                self._changed.wait()

    def _run_next_round(self, own: Request) -> None:
        with self._changed:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _ROUND_MAX))]
        try:
            self._leader = threading.get_ident()
            self._run_round(batch)
        finally:
            # An interrupt (Ctrl-C) belongs to the leader alone: the others' requests go again.
            again = [r for r in reversed(batch) if not r.done and r is not own]
            if again:
                with self._changed:
                    self._queue.extendleft(again)

    def _stop_leading(self) -> None:
        with self._changed:
            self._holder = self._leader = None
            self._leading = False
            self._changed.notify_all()

    def _withdraw(self, request: Request) -> None:
        """Interrupted: nobody waits for it any more, so it is not to be run later."""
        with self._changed:
            if request in self._queue:
                self._queue.remove(request)
                self._changed.notify_all()  # `end` may be waiting for an empty queue.
