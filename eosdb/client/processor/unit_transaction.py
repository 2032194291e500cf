"""The transaction of a processor whose handler writes the user's tables: a unit of the file.

The unit holds the file's only write lock. So it begins when the handler gets the first record, and ends
with the last record of the poll at the latest; no poll or pause holds it. Each attempt is a savepoint in
the unit, which is rolled back alone if the attempt fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor.transaction import (
    FAULTS_OF_RESULTS,
    Make,
    Offsets,
    ProcessingTransaction,
    send_by,
)
from eosdb.errors import (
    EosdbError,
    IllegalStateError,
)
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics
from eosdb.model.values import (
    ConsumerGroupMetadata,
    ProducerRecord,
    ScheduledRecord,
    TopicPartition,
)


class Part(Protocol):
    """The transaction that a handler gets, for one attempt."""

    @property
    def publish(self) -> Callable[..., object]: ...


class OpenUnit(Protocol):
    """A unit that stays open from one record to the next."""

    @property
    def is_whole(self) -> bool:
        """False after the whole unit was rolled back."""

    @property
    def failure(self) -> EosdbError | None:
        """The error of the file or disk that broke the unit, which no record caused; None if there is
        none."""

    def part(self) -> AbstractContextManager[Part]:
        """Open a savepoint, which is rolled back if the block raises. Its Part must not be used after the
        block."""

    def commit_offsets(self, group: ConsumerGroupMetadata, offsets: Offsets) -> None:
        """Commit offsets of the group in the unit. Raises if the member has lost its partitions."""


BeginUnit = Callable[[], AbstractContextManager[OpenUnit]]


class ProcessorFile(NamedTuple):
    """The file of a processor: its path, and operations that are not requests."""

    path: str
    begin: BeginUnit
    make_topic: Callable[[str], object]
    """Creates a topic for dead letters or postponed records, unless it exists."""
    waiting: Callable[[str], Sequence[ScheduledRecord]]
    """Returns the records that wait to enter a topic."""


class _Undone(Exception):
    """Raised in a unit's block to roll it back."""


# decisions/0040: the rows, results and offset of a record share one unit; an attempt is a savepoint in it.
class UnitTransaction(ProcessingTransaction):
    outlives_poll = False

    def __init__(
        self, consumer: Consumer, clock: Clock, metrics: Metrics, begin: BeginUnit
    ) -> None:
        super().__init__(consumer, clock, metrics)
        self._begin = begin
        self._block: AbstractContextManager[OpenUnit] | None = None
        self._unit: OpenUnit | None = None

    @property
    def holds_lock(self) -> bool:
        return self._unit is not None

    def prepare(self) -> None:
        """Do nothing: a unit has no transactional id, and an open unit ends with its process."""

    def begin(self) -> None:
        self._open()

    def deliver(self, make: Make) -> Exception | None:
        unit, is_sending = self._open(), False
        try:
            with unit.part() as tx:
                results = make(tx)
                is_sending = True
                for result in results:
                    send_by(tx.publish, result)
                is_sending = False
        except Exception as error:
            if unit.failure is not None:
                raise unit.failure from error
            # IllegalStateError is the handler's own error: the handler left the unit in an unusable state.
            if is_sending and not isinstance(error, (*FAULTS_OF_RESULTS, IllegalStateError)):
                raise
            if not unit.is_whole:
                # The roll-back of the unit included earlier records, so these are processed again.
                self._break_off()
            return error
        return None

    def send(self, record: ProducerRecord) -> None:
        with self._open().part() as tx:
            send_by(tx.publish, record)

    def let_go(self) -> Offsets:
        return {} if self.is_broken else self.commit()

    @contextlib.contextmanager
    def batch(self) -> Iterator[list[TopicPartition]]:
        try:
            with super().batch() as made_anew:
                yield made_anew
        except BaseException:
            self._break_off()
            raise

    def commit(self) -> Offsets:
        assert not self.is_broken
        unit, block, offsets = self._unit, self._block, self._offsets()
        try:
            if unit is not None and block is not None and offsets:
                unit.commit_offsets(self._committer(), offsets)
                block.__exit__(None, None, None)
                self._is_committed()
        except BaseException:
            self.is_broken = True
            raise
        finally:
            self._undo()
        self._forget()
        return offsets

    def close(self) -> None:
        self._undo()

    def _open(self) -> OpenUnit:
        """Return the open unit; begin one if there is none."""
        if self._unit is None:
            # Assign the block before it begins, so that `_undo` finds it after any error.
            self._block = self._begin()
            self._unit = self._block.__enter__()
            self._began_ms = self.clock.monotonic_ms()
        return self._unit

    def _break_off(self) -> None:
        self.is_broken = True
        self._undo()

    def _undo(self) -> None:
        """Roll back the unit; does nothing if none is open."""
        block, self._block, self._unit = self._block, None, None
        if block is not None:
            undone = _Undone()
            with contextlib.suppress(_Undone):
                block.__exit__(_Undone, undone, None)
