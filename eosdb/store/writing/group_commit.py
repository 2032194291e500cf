"""Group commit: requests of many threads share one SQLite commit (decisions/0016).

Every thread queues its request and tries to take a lock, the lead. The leader runs the queued requests in
one unit, commits once, and wakes the threads of these requests, then the next leader.

A block (`db.begin()`) queues a request called a turn, which stays first in the queue until the block ends,
so no other thread leads. The turn belongs to the block and not to a thread: web frameworks enter and leave
a block in different threads of a pool (decisions/0042).

A signal (Ctrl-C) may raise between any two steps of Python (decisions/0018). So the lead is a C lock with
an owner, released by one call. One assignment ends a turn. A request stays in the queue until it is done.
Threads also poll, in case nobody wakes them.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from eosdb.errors import IllegalStateError
from eosdb.model import threads
from eosdb.model.clock import real_ns
from eosdb.model.threads import Fate
from eosdb.store.file.failures import locked_error
from eosdb.store.writing.unit import Unit
from eosdb.system.signals import is_of_a_signal

T = TypeVar("T")

_ROUND_MAX: Final = 128
# decisions/0016: without this wait, threads that write all the time form two halves that never share a
# commit.
_GATHER_SECONDS: Final = 0.0005
"""The longest a leader waits for more requests: less than a sync takes on most disks."""
_LOOK_AGAIN_SECONDS: Final = 1.0
"""The polling interval of waiting threads: an interrupt (Ctrl-C) may keep a leader from waking them."""


class UnitRequest:
    """A function to run in a unit, and its result or error."""

    __slots__ = (
        "_wake", "alone", "asked_ns", "done", "error", "function", "give_back", "is_left", "result", "sync",
        "thread", "what",
    )  # fmt: skip

    def __init__(self, function: Callable[[Unit], Any], sync: bool, *, alone: bool = False) -> None:
        self.function = function
        self.sync = sync
        self.alone = alone
        """A turn: no other request shares its round."""
        self.asked_ns = real_ns()
        self.thread = 0
        """The thread in which the turn began."""
        self.what = ""
        """The purpose of the turn, for error texts."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.is_left = False
        """The request is done or interrupted and must not run any more. For a turn: the block has ended."""
        self._wake: threading.Lock | None = None
        self.give_back: Callable[[], object] | None = None
        """Returns the thread that was lent to the pool during the wait."""

    @property
    def is_waiting(self) -> bool:
        return not (self.done or self.is_left)

    def prepare_to_wait(self) -> bool:
        """Create the lock for `wait` and `wake`; returns whether it existed."""
        if self._wake is not None:
            return True
        wake = threading.Lock()
        wake.acquire()
        self._wake = wake
        return False

    def wait(self, seconds: float) -> bool:
        """Wait until this thread is woken; False when the time is up."""
        assert self._wake is not None
        return self._wake.acquire(timeout=seconds)

    def wake(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # Already woken.
                self._wake.release()


def _nothing(_: Unit) -> None:
    return None


# decisions/0042: a turn belongs to its block, not to a thread.
_turns: Final[ContextVar[tuple[UnitRequest, ...]]] = ContextVar("eosdb_turns", default=())
"""The turns of the blocks that contain the running code. Ended turns are ignored: a block that is left in
another context cannot remove its turn here."""


def _turns_here() -> tuple[UnitRequest, ...]:
    return tuple([turn for turn in _turns.get() if not turn.is_left])


def _runs_a_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class GroupCommit:
    """Queues requests and lets one thread at a time run a round of them."""

    def __init__(
        self,
        run_round: Callable[[list[UnitRequest]], None],
        patience_ms: int = 30_000,
        path: str = "the file",
    ) -> None:
        self._run_round = run_round
        self._path = path
        self._patience_ms = patience_ms
        self._lead = threading.RLock()
        self._lock = threading.Lock()
        """Guards the queue and the attributes below."""
        self._queue: deque[UnitRequest] = deque()
        self._holder: UnitRequest | None = None
        """The request that leads or led last."""
        self._gathering: UnitRequest | None = None
        """The request whose thread waits for more requests to share its round."""
        self._crowd = 1
        """How many threads have submitted requests recently."""
        self._refusal: Callable[[], Exception] | None = None

    def submit(self, function: Callable[[Unit], T], sync: bool, fate: Fate | None = None) -> T:
        """Run `function` in a unit and return its result once the unit is committed."""
        self.check_holds_nothing()
        request = UnitRequest(function, sync)
        if fate is not None:
            fate.ask = partial(self._outcome, request)
        try:
            self._queue_up(request)
            while not request.done and self._wait_for_lead(request):
                if sync and self._crowd > 1:
                    self._gather(request)
                self._run_next_round()
                if not request.done:  # An interrupted leader had not reached this request.
                    self.go_on()
        except Exception as error:
            # After the commit, an error must not look like a failed commit.
            if not request.done or is_of_a_signal(error):
                raise
        finally:
            request.is_left = True
            try:
                self._lead.release()
            except RuntimeError:
                pass  # This thread did not lead.
            else:
                self._wake_next()
            if request.give_back is not None:
                request.give_back()
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result

    def _outcome(self, request: UnitRequest) -> Any:
        """Return the result of a request whose thread was interrupted; None if the request was not
        committed. Waits for the lead, which is free after the request's round."""
        self._check_leads_no_round()
        try:
            if not (request.done or self._lead.acquire(timeout=self._patience_ms / 1000)):
                raise locked_error(self._path, "this process: a write", self._patience_ms)
        finally:
            with contextlib.suppress(RuntimeError):
                self._lead.release()
        self._wake_next()
        return request.result if request.done and request.error is None else None

    def new_turn(self, what: str) -> UnitRequest:
        """Return a turn for `take`. From then on, no other request leads until some thread sets `is_left`.
        `what` is its purpose, for error texts. Raises IllegalStateError inside the block of another turn.
        """
        self.check_holds_nothing()
        turn = UnitRequest(_nothing, sync=False, alone=True)
        turn.what = what
        return turn

    def take(self, turn: UnitRequest) -> None:
        """Wait until the turn leads. Raises DatabaseLockedError if the current leader takes too long."""
        assert turn.alone, "a turn shares no round"
        try:
            self._queue_up(turn)
            self._wait_for_lead(turn)
            turn.thread = threading.get_ident()
            self._holder = turn
        finally:
            try:
                self._lead.release()
            except RuntimeError:
                turn.is_left = True  # This thread does not lead: the wait failed.
            if turn.give_back is not None:
                turn.give_back()
        _turns.set((*_turns_here(), turn))

    def left(self, turn: UnitRequest) -> None:
        """End the turn, or give up waiting for it. Takes no lock, since the garbage collector may call
        this in any thread at any point."""
        turn.is_left = True
        _turns.set(_turns_here())
        self._wake_next()

    def check_holds_nothing(self) -> None:
        """Raises IllegalStateError where waiting for the lead would never end: inside a turn's block, and
        in the thread that is running a round."""
        holder = self._holder
        if holder is not None and not holder.is_left:
            if holder in _turns.get():
                raise IllegalStateError(
                    "this code is inside a block of db.begin(), which is the one writer; write with "
                    "tx.publish, tx.commit_offsets and tx.connection, or after the block"
                )
            if holder.thread == threading.get_ident() and _runs_a_loop():
                raise IllegalStateError(
                    "another task of this event loop is inside a block of db.begin(), and could not go on "
                    "while this task waits; run blocks in threads (asyncio.to_thread), or use eosdb.aio"
                )
        self._check_leads_no_round()

    def _check_leads_no_round(self) -> None:
        if self._lead._is_owned():  # type: ignore[attr-defined]
            raise IllegalStateError(
                "this thread is in the middle of a write, such as a rebuild that reports its progress; "
                "write, or close the database, when it is done"
            )

    def end(self, refusal: Callable[[], Exception]) -> None:
        """Wait until every queued request is done; later requests raise `refusal()`."""
        last = UnitRequest(_nothing, sync=False, alone=True)
        try:
            with self._lock:
                self._refusal = refusal
                self._queue.append(last)
            self._wait_for_lead(last, math.inf)
        finally:
            last.is_left = True
            # decisions/0018: no signal can raise between these calls into C.
            try:  # noqa: SIM105
                self._lead.release()
            except RuntimeError:
                pass
        self._wake_next()

    def pause(self, patience_s: float) -> bool:
        """Take the lead if it is free within `patience_s`, and keep it until `go_on` in the same thread."""
        try:
            self.check_holds_nothing()
        except IllegalStateError:
            return False
        request = UnitRequest(_nothing, sync=False, alone=True)
        try:
            with self._lock:
                self._queue.append(request)
            return self._wait_for_lead(request, patience_s)
        finally:
            request.is_left = True
            self._wake_next()

    def go_on(self) -> None:
        self._lead.release()
        self._wake_next()

    # -- waiting --------------------------------------------------------------------------------

    def _queue_up(self, request: UnitRequest) -> None:
        # decisions/0042: a block may need this thread to end, so the thread is lent during the wait.
        if not self._append(request, unless_behind_a_block=threads.may_lend()):
            request.give_back = threads.lend()
            self._append(request)

    def _append(self, request: UnitRequest, *, unless_behind_a_block: bool = False) -> bool:
        """Queue the request. With `unless_behind_a_block`, returns False if a block is queued."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            if unless_behind_a_block and any(r.alone and r.is_waiting for r in self._queue):
                return False
            self._queue.append(request)
            gathering = self._gathering
        if gathering is not None and len(self._queue) >= self._crowd:
            gathering.wake()
        return True

    def _wait_for_lead(self, request: UnitRequest, at_most_s: float | None = None) -> bool:
        """Wait for the lead. True when this thread leads; False when the request is done or the time is up.
        Without a time-out, raises DatabaseLockedError if a block takes too long. The request is queued
        before this checks for a leader, and a leader checks the queue after it releases the lead. So no
        request is missed."""
        waited = 0.0
        while not request.done:
            if self._lead.acquire(blocking=False):
                if self._may_lead(request):
                    return not request.done
                self.go_on()
            patience = self._patience_ms / 1000 if at_most_s is None else at_most_s
            pause = min(_LOOK_AGAIN_SECONDS, max(patience, 0.05))
            if request.prepare_to_wait() and not request.wait(pause):
                waited += pause
                if waited >= patience:
                    if at_most_s is not None:
                        return False
                    self._check_patience()
        return False

    def _may_lead(self, request: UnitRequest) -> bool:
        """Whether this may lead: a request waits for earlier turns, a turn for every earlier request."""
        with self._lock:
            first = self._first()
            return first is request or not (request.alone or (first is not None and first.alone))

    def _first(self) -> UnitRequest | None:
        queue = self._queue
        while queue and (queue[0].done or queue[0].is_left):
            queue.popleft()
        return queue[0] if queue else None

    def _wake_next(self) -> None:
        """Wake the first waiting request without taking the queue's lock (see `left`)."""
        try:
            for request in tuple(self._queue):
                if request.is_waiting:
                    request.wake()
                    break
        except RuntimeError:
            pass  # Another thread changed the queue meanwhile. That thread looks for the next leader.

    def _check_patience(self) -> None:
        """Raises DatabaseLockedError if the block that holds the turn has kept it for too long."""
        holder = self._holder
        if holder is not None and not holder.is_left:
            names = (
                thread.name for thread in threading.enumerate() if thread.ident == holder.thread
            )
            thread = next(names, "that has ended since")
            raise locked_error(
                self._path, f"this process: {holder.what} of the thread {thread}", self._patience_ms
            )

    # -- leading --------------------------------------------------------------------------------

    def _gather(self, own: UnitRequest) -> None:
        """Wait briefly for new requests from the threads of the last round."""
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
            batch: list[UnitRequest] = []
            for request in self._queue:
                if not (request.done or request.is_left):
                    if request.alone or len(batch) == _ROUND_MAX:
                        break
                    batch.append(request)
        try:
            self._run_round(batch)
        finally:
            with self._lock:
                self._first()
                self._crowd = max(len(batch) + len(self._queue), 1)
            for request in batch:
                if request.done:
                    request.wake()
