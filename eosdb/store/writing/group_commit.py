"""Group commit: requests of many threads share one SQLite commit.

Whoever comes queues up and tries to lead. The leader runs what has queued up in one unit, commits once,
and wakes whom it has answered, and then who may lead next. Threads that write all the time would so split
into two halves that never share a commit; a leader of a synced round therefore waits a little for as many
as were there lately (decisions/0016).

A signal (Ctrl-C) may raise between any two steps of Python. So the lead is a lock of C's that knows its
owner and is let go of by one call (decisions/0018), a request stays in the queue until it has been
answered, and nobody waits for a wake-up alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Any, Final, TypeVar

from eosdb.errors import DatabaseLockedError, IllegalStateError
from eosdb.store.writing.unit import Unit

T = TypeVar("T")

_ROUND_MAX: Final = 128
# decisions/0016: otherwise threads split into two halves that never share a commit.
_GATHER_SECONDS: Final = 0.0005
"""How long a leader waits at most for the others: less than a sync to most disks."""
_LOOK_AGAIN_SECONDS: Final = 1.0
"""An interrupt (Ctrl-C) may keep a leader from waking somebody."""


class Request:
    """A function to run in a unit, and what became of it."""

    __slots__ = ("_wake", "alone", "done", "error", "function", "is_left", "result", "sync")

    def __init__(self, function: Callable[[Unit], Any], sync: bool, *, alone: bool = False) -> None:
        self.function = function
        self.sync = sync
        self.alone = alone
        """Its thread wants to lead, and nothing else."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.is_left = False
        """Its thread has gone: answered, or interrupted, and then nobody is to run it any more."""
        self._wake: threading.Lock | None = None

    @property
    def is_waiting(self) -> bool:
        return not (self.done or self.is_left)

    def prepare_to_wait(self) -> bool:
        """Whether it can be woken already; if not, it can be from now on."""
        if self._wake is not None:
            return True
        wake = threading.Lock()
        wake.acquire()
        self._wake = wake
        return False

    def wait(self, seconds: float) -> bool:
        """Until somebody wakes this request's thread; False when the time is over."""
        assert self._wake is not None
        return self._wake.acquire(timeout=seconds)

    def wake(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # It has been woken already.
                self._wake.release()


def _nothing(_: Unit) -> None:
    return None


class GroupCommit:
    """Queues requests and lets one thread at a time run a round of them."""

    def __init__(
        self, run_round: Callable[[list[Request]], None], patience_ms: int = 30_000
    ) -> None:
        self._run_round = run_round
        self._patience_ms = patience_ms
        self._lead = threading.RLock()
        self._lock = threading.Lock()
        """Guards the queue, and what goes with it."""
        self._queue: deque[Request] = deque()
        self._holder: Request | None = None
        """Who holds the turn for a unit of its own."""
        self._gathering: Request | None = None
        """Whose thread waits for more requests to share its round."""
        self._crowd = 1
        """How many threads were there lately."""
        self._refusal: Callable[[], Exception] | None = None

    def submit(self, function: Callable[[Unit], T], sync: bool) -> T:
        """Run `function` in a unit and return its result once the unit is committed."""
        self.check_holds_nothing()
        request = Request(function, sync)
        try:
            self._queue_up(request)
            while self._wait_for_lead(request):
                if sync and self._crowd > 1:
                    self._gather(request)
                self._run_next_round()
                if not request.done:  # It was not its turn yet.
                    self.go_on()
        finally:
            request.is_left = True
            try:
                self._lead.release()
            except RuntimeError:
                pass  # Somebody else led.
            else:
                self._wake_next()
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
        self.check_holds_nothing()
        request = Request(_nothing, sync=False, alone=True)
        try:
            self._queue_up(request)
            self._wait_for_lead(request)
            self._holder = request
            yield
        finally:
            request.is_left = True
            if self._holder is request:
                self._holder = None
            try:
                self._lead.release()
            except RuntimeError:
                pass  # It has not come to lead.
            else:
                self._wake_next()

    def check_holds_nothing(self) -> None:
        """Raises IllegalStateError in the thread that holds the turn, or that is running a round."""
        if not self._is_ours():
            return
        if self._holder is None:
            raise IllegalStateError(
                "this thread is in the middle of a write, such as a rebuild that reports its progress; "
                "write, or close the database, when it is done"
            )
        raise IllegalStateError(
            "this thread is inside a block of db.begin(), which is the one writer; write with "
            "tx.publish, tx.commit_offsets and tx.connection, or after the block"
        )

    def end(self, refusal: Callable[[], Exception]) -> None:
        """Return when everything that has come is done; whoever comes now gets `refusal()`."""
        last = Request(_nothing, sync=False, alone=True)
        with self._lock:
            self._refusal = refusal
            self._queue.append(last)
        try:
            self._wait_for_lead(last, for_ever=True)
        finally:
            last.is_left = True
            with contextlib.suppress(RuntimeError):
                self._lead.release()
        self._wake_next()

    def pause(self, patience_s: float) -> bool:
        """Take the lead, if it can be had, until `go_on` of the same thread."""
        return not self._is_ours() and self._lead.acquire(timeout=patience_s)

    def go_on(self) -> None:
        """Let somebody else lead."""
        self._lead.release()
        self._wake_next()

    def _is_ours(self) -> bool:
        """Whether this thread leads."""
        is_owned: bool = self._lead._is_owned()  # type: ignore[attr-defined]
        return is_owned

    # -- waiting --------------------------------------------------------------------------------

    def _queue_up(self, request: Request) -> None:
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            self._queue.append(request)
            gathering = self._gathering
        if gathering is not None and len(self._queue) >= self._crowd:
            gathering.wake()

    def _wait_for_lead(self, request: Request, *, for_ever: bool = False) -> bool:
        """True when this thread leads, False when the request has been answered meanwhile.

        It stands in the queue before this looks who leads, and who leads looks into the queue after it
        has ceased to: so one of the two sees the other.
        """
        waited, patience = 0.0, self._patience_ms / 1000
        pause = min(_LOOK_AGAIN_SECONDS, max(patience, 0.05))
        while not request.done:
            if self._lead.acquire(blocking=False):
                if self._may_lead(request):
                    return not request.done
                self.go_on()
            if request.prepare_to_wait() and not request.wait(pause):
                waited += pause
                if waited >= patience and not for_ever:
                    self._check_patience()
        return False

    def _may_lead(self, request: Request) -> bool:
        """Not before somebody who came earlier and wants a turn of its own; and such a one, not before
        those who came earlier."""
        with self._lock:
            first = self._first()
            return first is request or not (request.alone or (first is not None and first.alone))

    def _first(self) -> Request | None:
        """The first that waits; those before it have gone or been answered."""
        while self._queue and not self._queue[0].is_waiting:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _wake_next(self) -> None:
        with self._lock:
            following = self._first()
        if following is not None:
            following.wake()

    def _check_patience(self) -> None:
        """Nobody waits without end for one that holds the turn."""
        if self._holder is not None:
            raise DatabaseLockedError(
                f"a block of db.begin() in another thread has been writing for {self._patience_ms} ms; "
                "nothing was written, try again, make the block shorter, or raise lock_timeout_ms"
            )

    # -- leading --------------------------------------------------------------------------------

    def _gather(self, own: Request) -> None:
        """Give those that were there lately the time to come again."""
        own.prepare_to_wait()
        try:
            with self._lock:
                if len(self._queue) >= self._crowd:
                    return
                self._gathering = own
            own.wait(_GATHER_SECONDS)
        finally:
            self._gathering = None

    def _run_next_round(self) -> None:
        with self._lock:
            self._first()
            waiting = (request for request in self._queue if request.is_waiting)
            batch = list(islice(takewhile(lambda request: not request.alone, waiting), _ROUND_MAX))
        try:
            self._run_round(batch)
        finally:
            with self._lock:
                self._first()
                self._crowd = max(len(batch) + len(self._queue), 1)
            for request in batch:
                if request.done:
                    request.wake()
