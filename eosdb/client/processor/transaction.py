"""The transaction of a processor, which commits results and offsets together or rolls both back.

A transaction begins with its first record and ends with `commit` or a rollback. A rollback takes the
consumer back to the group's committed offsets, and the records are processed again. There are two kinds:
Kafka's, with a producer, and a unit of the file (`unit_transaction`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor.progress import ProcessorProgress
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.state import ClientState
from eosdb.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicExceptionError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics
from eosdb.model.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    TopicPartition,
)

FAULTS_OF_RESULTS: Final = (
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicExceptionError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
"""The errors of a result that cannot be stored as it is: its record has failed."""
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Make = Callable[[Any], list[ProducerRecord]]
"""Runs the handler with its transaction (None if it takes none), and returns the records to send."""


def send_by(send: Callable[..., object], record: ProducerRecord) -> None:
    """Hand the record to `Producer.send` or `UserTransaction.publish`."""
    send(
        record.topic,
        record.value,
        key=record.key,
        partition=record.partition,
        headers=record.headers,
        timestamp=record.timestamp,
        deliver_at=record.deliver_at,
    )


class ProcessingTransaction(ABC):
    """The open transaction of a processor, if any; the base of both kinds."""

    outlives_poll: ClassVar[bool]
    """Whether a transaction may take records of several polls; otherwise it ends with its poll."""
    producer: Producer | None = None

    def __init__(self, consumer: Consumer, clock: Clock, metrics: Metrics) -> None:
        self._consumer = consumer
        self.clock: Final = clock
        self.metrics: Final = metrics
        self.taken_in = self.records = 0
        """The records in the transaction, and those that are complete."""
        self.is_broken = False
        """Whether the transaction can only be rolled back, by `mend`."""
        self._began_ms: int | None = None
        self.tally: Counter[str] = Counter()
        """The effects of the open transaction, by the names of a ProcessReport."""
        self.committed: Counter[str] = Counter()
        """The sum of `tally` over the committed transactions."""
        self._progress: dict[TopicPartition, ProcessorProgress] = {}
        """The progress of each assigned partition of which a record was read."""
        self._touched: set[TopicPartition] = set()
        """The partitions with records that are complete in this transaction."""
        self._starts: dict[TopicPartition, int] = {}
        """The offset of each partition's first record in the transaction."""
        self._topic_ids: dict[TopicPartition, UUID] = {}
        """The topic ids of the partitions that the last poll read."""

    def age_ms(self) -> int:
        """How long the transaction has been open; 0 if there is none."""
        return 0 if self._began_ms is None else self.clock.monotonic_ms() - self._began_ms

    @property
    def holds_lock(self) -> bool:
        """Whether the transaction holds the file's write lock now."""
        return False

    @abstractmethod
    def prepare(self) -> None:
        """Initialise the transactional id, which ends an open transaction of its previous holder."""

    def progress(self, tp: TopicPartition) -> ProcessorProgress:
        """The progress of an assigned partition, which begins at the group's committed offset."""
        if tp not in self._progress:
            self._progress[tp] = ProcessorProgress(self._consumer.committed([tp]).get(tp))
        return self._progress[tp]

    def take_in(self, tp: TopicPartition, offsets: Sequence[int], first: int | None = None) -> None:
        """Note that records are being processed; `first` is the first offset that was read with them."""
        if offsets:
            self.progress(tp).take(offsets)
        assert first is None or not offsets or first <= offsets[0], first
        self._starts.setdefault(tp, offsets[0] if first is None else first)
        self.taken_in += len(offsets)

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction if none is open."""

    @abstractmethod
    def deliver(self, make: Make) -> Exception | None:
        """Run the handler and send its results, all or none. Returns the error of a failed record; raises
        errors that the record did not cause."""

    @abstractmethod
    def send(self, record: ProducerRecord) -> None:
        """Send a record on behalf of a record in the transaction."""

    def complete(self, tp: TopicPartition, offsets: Sequence[int]) -> None:
        """Mark records as complete: all of their results are sent."""
        assert offsets, tp
        self.begin()
        self._progress[tp].complete(offsets)
        self._touched.add(tp)
        self.records += len(offsets)

    def pass_by(self, tp: TopicPartition, offset: int) -> None:
        """Note that up to this offset the records that were not taken in need nothing."""
        self.begin()
        self._progress[tp].pass_by(offset)
        self._touched.add(tp)
        self.records += 1

    def let_go(self) -> Offsets:
        """Commit before a pause if the transaction holds the write lock. Returns the same as `commit`, and
        raises its errors."""
        return {}

    @contextlib.contextmanager
    def batch(self) -> Iterator[list[TopicPartition]]:
        """A block that processes the records of one poll. Yields the partitions of recreated topics."""
        now = self._consumer.group_metadata().topic_ids
        # Offsets of a deleted topic's records mean nothing in the recreated topic, so drop them.
        made_anew = [tp for tp, new in now.items() if self._topic_ids.get(tp, new) != new]
        self.drop(made_anew)
        self._topic_ids = dict(now)
        yield made_anew

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that this copy no longer owns."""
        for tp in partitions:
            self._starts.pop(tp, None)
            self._progress.pop(tp, None)
            self._touched.discard(tp)

    @abstractmethod
    def commit(self) -> Offsets:
        """Commit the completed records. Returns the committed offsets. Raises errors of the group, the
        coordinator and the file. After such an error, call `mend`, which rolls the transaction back."""

    def mend(self) -> None:
        """Roll back the open transaction, and seek to the committed offsets, which also show the outcome
        of a commit without a response."""
        self._undo()
        now = self._consumer.group_metadata().topic_ids
        mine = {tp for tp in self._starts if now.get(tp) in (None, self._topic_ids.get(tp))}
        committed = self._consumer.committed(sorted(mine)) if mine else {}
        for tp in sorted(mine):
            known = committed.get(tp)
            self._consumer.seek(tp, self._starts[tp] if known is None else known.offset)
        if self._began_ms is not None:
            self.metrics.count("abort")
        self._progress.clear()
        self._forget()

    @abstractmethod
    def _undo(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def _offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: self._progress[tp].as_offset() for tp in self._touched}

    def _committer(self) -> ConsumerGroupMetadata:
        """The group metadata for committing the offsets, with the topic ids."""
        return dataclasses.replace(self._consumer.group_metadata(), topic_ids=self._topic_ids)

    def _is_committed(self) -> None:
        self.metrics.count("commit")
        self.committed.update(self.tally)
        self.tally.clear()

    def _forget(self) -> None:
        """End the transaction. Records that are not complete go into the next one."""
        self.tally.clear()
        self._touched.clear()
        lowest = {tp: progress.lowest() for tp, progress in self._progress.items()}
        self._starts = {tp: offset for tp, offset in lowest.items() if offset is not None}
        self.taken_in = sum(self._progress[tp].unfinished for tp in self._starts)
        self._began_ms, self.records, self.is_broken = None, 0, False


_MAY_BE_ABORTED: Final = {
    ClientState.IN_TRANSACTION.name,
    ClientState.ABORTABLE_ERROR.name,
    ClientState.ABORTING_TRANSACTION.name,
}
_REFUSED: Final = {ClientState.ABORTABLE_ERROR.name, ClientState.FATAL_ERROR.name}


class ProducerTransaction(ProcessingTransaction):
    """Processes records in Kafka's transactions, one at a time."""

    outlives_poll = True

    def __init__(
        self,
        consumer: Consumer,
        clock: Clock,
        metrics: Metrics,
        make_producer: Callable[[], Producer],
    ) -> None:
        super().__init__(consumer, clock, metrics)
        self._make_producer = make_producer

    def prepare(self) -> None:
        if self.producer is None:
            producer = self._make_producer()
            producer.init_transactions()
            self.producer = producer

    def begin(self) -> None:
        if self._began_ms is None:
            self.prepare()
            assert self.producer is not None
            self.producer.begin_transaction()
            self._began_ms = self.clock.monotonic_ms()

    def deliver(self, make: Make) -> Exception | None:
        self.begin()
        # decisions/0010: a failed handler needs no roll-back, because its results are sent only after it
        # has returned.
        try:
            results = make(None)
        except Exception as error:
            return error
        assert not self.is_broken
        assert self.producer is not None
        send = self.producer.send
        for result in results:
            # An interrupt between two results must leave a transaction that cannot be committed.
            self.is_broken = True
            was_refused = self.producer.state in _REFUSED
            try:
                send_by(send, result)
            except FAULTS_OF_RESULTS as error:
                if was_refused:
                    raise  # The cause may be an earlier record of the transaction.
                return error
        self.is_broken = False
        return None

    def send(self, record: ProducerRecord) -> None:
        self.begin()
        assert self.producer is not None
        send_by(self.producer.send, record)

    def commit(self) -> Offsets:
        if self._began_ms is None:
            return {}
        assert self.producer is not None
        assert not self.is_broken
        offsets = self._offsets()
        self.producer._commit_with(offsets, self._committer())
        self._is_committed()
        self._forget()
        return offsets

    def _undo(self) -> None:
        producer = self.producer
        if producer is None:
            return
        if producer.state in _MAY_BE_ABORTED:
            producer.abort_transaction()
        if producer.state != ClientState.READY.name:
            # A producer that was fenced or is committing cannot abort. A new producer with the same
            # transactional id ends the transaction.
            producer.close()
            self.producer = None
            self.prepare()

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()
