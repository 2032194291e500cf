"""Group commit: requests of many threads share one SQLite commit.

The first thread that comes leads: it runs what has queued up in one unit, commits once, and hands out the
results. Whoever comes meanwhile waits for the next round, which the first of them leads. Threads that
write all the time would so split into two halves that never share a commit; a leader of a synced round
therefore waits a little for as many as were there lately.
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
_GATHER_SECONDS: Final = 0.0005
"""How long a leader waits at most for the others: less than a sync to most disks."""
_LOOK_AGAIN_SECONDS: Final = 1.0
"""An interrupt (Ctrl-C) may keep a leader from waking somebody."""


class Request:
    """A function to run in a unit, and what became of it."""

    __slots__ = ("_wake", "alone", "done", "error", "function", "leads", "result", "sync")

    def __init__(self, function: Callable[[Unit], Any], sync: bool, *, alone: bool = False) -> None:
        self.function = function
        self.sync = sync
        self.alone = alone
        """Its thread wants to lead, and nothing else."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        self._wake: threading.Lock | None = None

    def queue_up(self) -> None:
        self._wake = threading.Lock()
        self._wake.acquire()

    def wait(self, seconds: float) -> bool:
        """Until somebody wakes this request's thread; False when the time is over."""
        assert self._wake is not None
        return self._wake.acquire(timeout=seconds)

    def wake(self) -> None:
        if self._wake is not None and self._wake.locked():
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
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._queue: deque[Request] = deque()
        self._is_led = False
        self._holder: int | None = None
        """The thread that holds the turn for a unit of its own."""
        self._leader: int | None = None
        """The thread that runs a round."""
        self._gathering: Request | None = None
        """Whose thread waits for more requests to share its round."""
        self._crowd = 1
        """How many threads were there lately."""
        self._refusal: Callable[[], Exception] | None = None

    def submit(self, function: Callable[[Unit], T], sync: bool) -> T:
        """Run `function` in a unit and return its result once the unit is committed."""
        request = Request(function, sync)
        try:
            self._take_turn(request)
            if sync and self._crowd > 1 and not request.done:
                self._gather(request)
            while not request.done:
                self._run_next_round(request)
        finally:
            self._leave(request)
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
        request = Request(_nothing, sync=False, alone=True)
        try:
            self._take_turn(request)
            self._holder = threading.get_ident()
            yield
        finally:
            if request.leads:
                self._holder = None
            self._leave(request)

    def _take_turn(self, request: Request) -> None:
        """Return when the request is done, or when its thread leads."""
        with self._lock:
            self._check_may_wait()
            if not self._is_led:
                # In one line: an interrupt between the two would leave a leader that is none.
                self._is_led = request.leads = True
                return
            request.queue_up()
            self._queue.append(request)
            gathering = self._gathering
            if gathering is not None and len(self._queue) + 1 >= self._crowd:
                gathering.wake()
        waited, patience = 0.0, self._patience_ms / 1000
        pause = min(_LOOK_AGAIN_SECONDS, max(patience, 0.05))
        while not (request.done or request.leads):
            if not request.wait(pause):
                waited += pause
                if waited >= patience:
                    self._check_patience()

    def _leave(self, request: Request) -> None:
        """Let the next in the queue lead. One that was interrupted is waited for by nobody any more, so it
        is not to be run later."""
        with self._lock:
            if not request.leads:
                if not request.done and request in self._queue:
                    self._queue.remove(request)
                    self._idle.notify_all()  # `end` may be waiting for an empty queue.
                return
            if not self._queue:
                self._is_led = False
                self._idle.notify_all()
                return
            following = self._queue.popleft()
            following.leads = True
        following.wake()

    def _check_patience(self) -> None:
        """Nobody waits without end for one that holds the turn."""
        if self._holder is not None:
            raise DatabaseLockedError(
                f"a block of db.begin() in another thread has been writing for {self._patience_ms} ms; "
                "nothing was written, try again, make the block shorter, or raise lock_timeout_ms"
            )

    def _check_may_wait(self) -> None:
        if self._refusal is not None:
            raise self._refusal()
        self.check_holds_nothing()

    def check_holds_nothing(self) -> None:
        """Raises IllegalStateError in the thread that holds the turn, or that is running a round."""
        if self._leader is None and self._holder is None:
            return
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

    def end(self, refusal: Callable[[], Exception]) -> None:
        """Return when everything that has come is done; whoever comes now gets `refusal()`."""
        with self._lock:
            self._refusal = refusal
            while self._is_led or self._queue:
                self._idle.wait()

    # -- leading --------------------------------------------------------------------------------

    def _gather(self, own: Request) -> None:
        """Give those that were there lately the time to come again."""
        with self._lock:
            if len(self._queue) + 1 >= self._crowd:
                return
            own.queue_up()
            self._gathering = own
        try:
            own.wait(_GATHER_SECONDS)
        finally:
            self._gathering = None

    def _run_next_round(self, own: Request) -> None:
        batch = [own]
        with self._lock:
            while self._queue and len(batch) < _ROUND_MAX and not self._queue[0].alone:
                batch.append(self._queue.popleft())
        self._leader = threading.get_ident()
        try:
            self._run_round(batch)
        finally:
            self._leader = None
            # An interrupt (Ctrl-C) belongs to the leader alone: the others' requests go again.
            again = [request for request in reversed(batch) if not (request.done or request is own)]
            with self._lock:
                self._queue.extendleft(again)
                self._crowd = len(batch) + len(self._queue)
            for request in batch:
                if request.done and request is not own:
                    request.wake()
