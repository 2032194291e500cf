"""Runs the handler for several records at once, in threads (decisions/0092).

Records of one key in one partition form a lane: the handler gets a record of it when the results of the
previous record are in the transaction. A record without a key has a lane of its own. The threads run only
the handler; the processor's thread calls every other method here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from queue import Empty, SimpleQueue
from typing import Final

from eosdb.client.processor.record_handler import Attempt, RecordHandler, Run
from eosdb.model.clock import Clock
from eosdb.model.threads import Thread
from eosdb.model.values import TopicPartition

MOST: Final = 400
"""The most records in progress: 4,096 bytes of offset metadata leave ten for the distance of each."""
_LOOK_S: Final = 0.02
"""The time without a result after which the processor looks for new records and rebalances."""


class Lanes:
    """The records in progress, and the threads that run the handler for them."""

    def __init__(self, threads: int, records: RecordHandler, clock: Clock) -> None:
        self._most_threads, self._records, self._clock = threads, records, clock
        self._threads: list[Thread] = []
        self._todo, self._done = SimpleQueue[Run | None](), SimpleQueue[Run]()
        self._lanes: dict[tuple[TopicPartition, object], deque[Run]] = {}
        self._later: list[Run] = []
        """Failed records that wait for their next attempt."""
        self.is_stopped = False
        """Whether no more calls begin. A signal handler may set it."""
        self.in_hand = self.running = 0
        """The number of records whose results are awaited, and of calls that have not returned."""

    def put(self, attempt: Attempt) -> None:
        run = Run(attempt)
        lane = self._lanes.setdefault(run.lane, deque())
        lane.append(run)
        self.in_hand += 1
        if lane[0] is run:
            self._begin(run)

    def ended(self, enough: int) -> Iterator[Run]:
        """Yield the handler's calls as they end. Stops when no further call has ended and at most `enough`
        records are in progress, or when no call has ended for _LOOK_S."""
        wait_s = _LOOK_S
        while self.running or self._later:
            now = self._clock.monotonic_ms() if self._later else 0
            due = [run for run in self._later if run.due_ms <= now]
            self._later = [run for run in self._later if run.due_ms > now]
            for each in due:
                self._begin(each)
            try:
                run = self._done.get(timeout=wait_s if self.running else 0)
            except Empty:
                return
            assert self.running > 0, self.running
            self.running -= 1
            run.is_out = False
            if run.is_off:
                self._advance(run)
            elif run.began_ns >= 0:  # A negative time means that the handler was never called.
                yield run
            wait_s = _LOOK_S if self.in_hand > enough else 0

    def release(self, run: Run) -> None:
        """Note that the record is complete, and begin the next record of its lane."""
        assert self.in_hand > 0, self.in_hand
        self.in_hand -= 1
        self._advance(run)

    def again(self, run: Run, backoff_ms: int) -> None:
        """Call the handler again after this time."""
        assert not run.is_out, run
        run.due_ms = self._clock.monotonic_ms() + backoff_ms
        self._later.append(run)

    def waits_ms(self) -> list[int]:
        """The time until each failed record is tried again, in ms."""
        return [run.due_ms - self._clock.monotonic_ms() for run in self._later]

    def drop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forget the records of these partitions, or all. Begun calls go on, and their lanes wait."""
        for name, lane in list(self._lanes.items()):
            if partitions is None or name[0] in partitions:
                self.in_hand -= sum(not run.is_off for run in lane)
                assert self.in_hand >= 0, self.in_hand
                for run in lane:
                    run.is_off = True
                self._lanes[name] = deque(run for run in lane if run.is_out)
                if not self._lanes[name]:
                    del self._lanes[name]
        self._later = [run for run in self._later if not run.is_off]

    def end(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the threads: at once for Ctrl-C, otherwise when their handlers have returned."""
        self.is_stopped = True
        for _each in self._threads:
            self._todo.put(None)
        for thread in () if kind is KeyboardInterrupt else self._threads:
            thread.join()

    def _begin(self, run: Run) -> None:
        assert not run.is_out, run
        if self.is_stopped:
            return
        if len(self._threads) < min(self.running + 1, self._most_threads):
            thread = Thread("the handlers", f"eosdb-worker-{len(self._threads)}", self._work)
            thread.start()
            self._threads.append(thread)
        run.began_ns, run.is_out = -1, True
        self.running += 1
        self._todo.put(run)

    def _advance(self, run: Run) -> None:
        lane = self._lanes[run.lane]
        assert lane[0] is run, run
        lane.popleft()
        if lane:
            self._begin(lane[0])
        else:
            del self._lanes[run.lane]

    def _work(self) -> None:
        """The loop of a worker thread."""
        while (run := self._todo.get()) is not None:
            if not (run.is_off or self.is_stopped):
                run.context.run(self._records.call, run)
            self._done.put(run)
