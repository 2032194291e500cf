"""The transaction of a processor: results and offsets together, and undoing what cannot be committed.

A transaction begins with its first record and ends with `commit` or by being undone; after the latter the
consumer is back at the group's committed offsets, and the records are processed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.state import ClientState
from eosdb.clock import Clock
from eosdb.metrics import Metrics
from eosdb.model.values import OffsetAndMetadata, ProducerRecord, TopicPartition

_MAY_BE_ABORTED = {
    ClientState.IN_TRANSACTION.name,
    ClientState.ABORTABLE_ERROR.name,
    ClientState.ABORTING_TRANSACTION.name,
}


class ProcessingTransaction:
    """One transaction at a time, with its producer."""

    def __init__(
        self,
        consumer: Consumer,
        make_producer: Callable[[], Producer],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._consumer = consumer
        self._make_producer = make_producer
        self._clock = clock
        self._metrics = metrics
        self.producer: Producer | None = None
        self.taken_in = self.records = 0
        """Number of records in it, and how many of them are complete."""
        self.is_broken = False
        """It cannot be committed; `mend` undoes it."""
        self._began_ms: int | None = None
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._starts: dict[TopicPartition, int] = {}

    @property
    def is_refused(self) -> bool:
        """Whether the broker has refused any part of it."""
        return self.producer is not None and self.producer.state in (
            ClientState.ABORTABLE_ERROR.name,
            ClientState.FATAL_ERROR.name,
        )

    def age_ms(self) -> int:
        """How long it has been open; 0 if there is none."""
        return 0 if self._began_ms is None else self._clock.monotonic_ms() - self._began_ms

    def prepare(self) -> None:
        """Take the transactional id, which ends what a previous holder left open."""
        if self.producer is None:
            producer = self._make_producer()
            producer.init_transactions()
            self.producer = producer

    def take_in(self, tp: TopicPartition, offset: int) -> None:
        """Add a record to the transaction."""
        if self._began_ms is None:
            self.prepare()
            assert self.producer is not None
            self.producer.begin_transaction()
            self._began_ms = self._clock.monotonic_ms()
        self._starts.setdefault(tp, offset)
        self.taken_in += 1

    def send(self, record: ProducerRecord) -> None:
        """Send a result of the record that was added last."""
        assert self.producer is not None
        assert record.topic is not None
        self.producer.send(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp=record.timestamp,
        )

    def complete(self, tp: TopicPartition, offset: int) -> None:
        """The record is done, with all of its results."""
        self._offsets[tp] = OffsetAndMetadata(offset + 1)
        self.records += 1

    def commit(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Commit the completed records. Returns the committed offsets; raises the error of the group or the
        coordinator, after which only `mend` helps."""
        if self._began_ms is None:
            return {}
        assert self.producer is not None
        if self._offsets:
            self.producer.send_offsets_to_transaction(
                self._offsets, self._consumer.group_metadata()
            )
        self.producer.commit_transaction()
        self._metrics.count("commit")
        offsets = dict(self._offsets)
        self._forget()
        return offsets

    def mend(self) -> None:
        """Undo what is open. The outcome of an unanswered commit shows in the committed offsets."""
        producer = self.producer
        if producer is not None:
            if producer.state in _MAY_BE_ABORTED:
                producer.abort_transaction()
            if producer.state != ClientState.READY.name:
                # Fenced, or in the middle of a commit: taking the id again ends what is open.
                producer.close()
                self.producer = None
                self.prepare()
        mine = self._starts.keys() & self._consumer.assignment()
        committed = self._consumer.committed(sorted(mine)) if mine else {}
        for tp in sorted(mine):
            known = committed.get(tp)
            self._consumer.seek(tp, self._starts[tp] if known is None else known.offset)
        if self._began_ms is not None:
            self._metrics.count("abort")
        self._forget()

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()

    def _forget(self) -> None:
        self._offsets.clear()
        self._starts.clear()
        self._began_ms, self.taken_in, self.records, self.is_broken = None, 0, 0, False
