"""Group commit: requests of many threads share one SQLite commit.

Every thread queues its request and tries to lead. The leader runs the queue in one unit, commits once,
wakes the threads it has answered, and then the next leader. Threads that write all the time would split
into two halves that never share a commit; a leader of a synced round therefore waits a little for as many
as came lately (decisions/0016).

A signal (Ctrl-C) may raise between any two steps of Python. So the lead is a C lock that knows its owner
and is released by one call (decisions/0018), a request stays in the queue until it has been answered, and
nobody relies on a wake-up alone.
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
"""The longest a leader waits for the others: less than a sync takes on most disks."""
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
        """Its thread has left, answered or interrupted; nobody must run it any more."""
        self._wake: threading.Lock | None = None

    @property
    def is_waiting(self) -> bool:
        return not (self.done or self.is_left)

    def prepare_to_wait(self) -> bool:
        """Whether its thread can be woken already; if not, it can be from now on."""
        if self._wake is not None:
            return True
        wake = threading.Lock()
        wake.acquire()
        self._wake = wake
        return False

    def wait(self, seconds: float) -> bool:
        """Wait until this request's thread is woken; False when the time is up."""
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
        """Guards the queue and what belongs to it."""
        self._queue: deque[Request] = deque()
        self._holder: Request | None = None
        """The thread that holds the turn for a unit of its own."""
        self._gathering: Request | None = None
        """The request whose thread waits for more requests to share its round."""
        self._crowd = 1
        """How many threads came lately."""
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
        """Lead for the length of the block without running any request: others wait.

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
        """Return when every queued request is done; later ones get `refusal()`."""
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
        """Take the lead, if it is free, until `go_on` of the same thread."""
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

        The request is queued before this looks for a leader, and a leader looks into the queue after it
        has stopped leading: so one of the two sees the other.
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
        """Not before an earlier thread that wants a turn of its own; and such a thread, not before any
        earlier one."""
        with self._lock:
            first = self._first()
            return first is request or not (request.alone or (first is not None and first.alone))

    def _first(self) -> Request | None:
        """The first that waits; those before it have left or been answered."""
        while self._queue and not self._queue[0].is_waiting:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _wake_next(self) -> None:
        with self._lock:
            following = self._first()
        if following is not None:
            following.wake()

    def _check_patience(self) -> None:
        """Nobody waits for ever for the thread that holds the turn."""
        if self._holder is not None:
            raise DatabaseLockedError(
                f"a block of db.begin() in another thread has been writing for {self._patience_ms} ms; "
                "nothing was written, try again, make the block shorter, or raise lock_timeout_ms"
            )

    # -- leading --------------------------------------------------------------------------------

    def _gather(self, own: Request) -> None:
        """Give the threads that came lately time to come again."""
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
