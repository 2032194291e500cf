"""The transaction of a processor: results and offsets together, and undoing what cannot be committed.

A transaction begins with its first record and ends with `commit` or by being undone; after the latter the
consumer is back at the group's committed offsets, and the records are processed again. There are two kinds:
Kafka's, with a producer (`producing`), and a unit of the file, in which handlers write tables of their own
(`own_tables`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.producer.producer import Producer
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
"""A result cannot be stored as it is, so its record has failed."""
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Make = Callable[[Any], list[ProducerRecord]]
"""Runs the handler with its transaction, None if it takes none, and returns what it wants to send."""


class ProcessingTransaction(ABC):
    """One transaction at a time."""

    outlives_poll: ClassVar[bool]
    """Whether it may wait for more records; if not, it ends with the records of one poll."""
    producer: Producer | None = None

    def __init__(self, consumer: Consumer, clock: Clock, metrics: Metrics) -> None:
        self._consumer = consumer
        self._clock = clock
        self._metrics = metrics
        self.taken_in = self.records = 0
        """Number of records in it, and how many of them are complete."""
        self.is_broken = False
        """It cannot be committed; `mend` undoes it."""
        self._began_ms: int | None = None
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._topic_ids: dict[TopicPartition, UUID] = {}
        """Of the topics that the records of the last poll are from."""

    def age_ms(self) -> int:
        """How long it has been open; 0 if there is none."""
        return 0 if self._began_ms is None else self._clock.monotonic_ms() - self._began_ms

    @property
    def holds_lock(self) -> bool:
        """Whether it keeps every other writer of the file waiting just now."""
        return False

    @abstractmethod
    def prepare(self) -> None:
        """Take what names this copy, which ends what a previous holder left open."""

    def take_in(self, tp: TopicPartition, offset: int) -> None:
        """Add a record to the transaction."""
        self._starts.setdefault(tp, offset)
        self.taken_in += 1

    @abstractmethod
    def deliver(self, make: Make) -> Exception | None:
        """Run the handler for the record that was added last, and send what it returns: all of it or
        nothing. Returns what the record has failed with; raises what it is not to blame for."""

    @abstractmethod
    def send(self, record: ProducerRecord) -> None:
        """Send something for the record that was added last."""

    def complete(self, tp: TopicPartition, offset: int) -> None:
        """The record is done, with all of its results."""
        self._offsets[tp] = OffsetAndMetadata(offset + 1)
        self.records += 1

    def let_go(self) -> Offsets:
        """Before a pause: hold nothing that others wait for. Returns and raises what `commit` does."""
        return {}

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """The records of one poll are processed in the block."""
        now = self._consumer.group_metadata().topic_ids
        for tp, topic_id in now.items():
            if self._topic_ids.get(tp, topic_id) != topic_id:
                # What was processed of a topic that is gone is done, and has no offset in the new one.
                self._starts.pop(tp, None)
                self._offsets.pop(tp, None)
        self._topic_ids = dict(now)
        yield

    @abstractmethod
    def commit(self) -> Offsets:
        """Commit the completed records. Returns the committed offsets; raises the error of the group, the
        coordinator or the file, after which only `mend` helps."""

    def mend(self) -> None:
        """Undo what is open. The outcome of an unanswered commit shows in the committed offsets."""
        self._undo()
        now = self._consumer.group_metadata().topic_ids
        mine = {
            tp
            for tp in self._starts.keys() & self._consumer.assignment()
            if now.get(tp) in (None, self._topic_ids.get(tp))
        }
        committed = self._consumer.committed(sorted(mine)) if mine else {}
        for tp in sorted(mine):
            known = committed.get(tp)
            self._consumer.seek(tp, self._starts[tp] if known is None else known.offset)
        if self._began_ms is not None:
            self._metrics.count("abort")
        self._forget()

    @abstractmethod
    def _undo(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def _committer(self) -> ConsumerGroupMetadata:
        """Who commits the offsets, and of which topics they are."""
        return dataclasses.replace(self._consumer.group_metadata(), topic_ids=self._topic_ids)

    def _forget(self) -> None:
        self._offsets.clear()
        self._starts.clear()
        self._began_ms, self.taken_in, self.records, self.is_broken = None, 0, 0, False
