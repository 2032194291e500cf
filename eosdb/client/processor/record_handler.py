"""What becomes of one record: results, another attempt, a retry later, or a dead letter.

A transaction holds all results of a record or none: they are sent after the handler has returned. So a
failing record does not affect those before it, and is simply tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.failure import Failure
from eosdb.client.processor.transaction import ProcessingTransaction
from eosdb.clock import Clock
from eosdb.errors import (
    EosdbError,
    HandlerFailedError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicExceptionError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from eosdb.metrics import Metrics
from eosdb.model.serializing import serialized
from eosdb.model.values import ConsumerRecord, OffsetAndMetadata, ProducerRecord, TopicPartition

Result = ProducerRecord | bytes | str
Handler = Callable[[ConsumerRecord], Result | Iterable[Result] | None]
"""Turns a record into what is to be sent: a value for the sink under the record's key, a ProducerRecord,
several of those, or nothing."""

FAULTS_OF_RESULTS: Final = (
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicExceptionError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
"""A result cannot be stored as it is, so its record has failed."""


class Attempt(NamedTuple):
    """A record being processed: as it was read, and as it was in its original topic."""

    tp: TopicPartition
    record: ConsumerRecord
    origin: ConsumerRecord
    before: int
    """How often it has been tried in earlier topics."""

    @property
    def key(self) -> tuple[TopicPartition, int]:
        return self.tp, self.record.offset


class RecordHandler:
    """Runs the user's handler on one record after another, and remembers failures."""

    def __init__(
        self,
        handler: Handler,
        sink: str | None,
        group_id: str,
        settings: ProcessorSettings,
        transaction: ProcessingTransaction,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._handler = handler
        self._sink = sink
        self._group_id = group_id
        self._settings = settings
        self._transaction = transaction
        self._clock = clock
        self._metrics = metrics
        self._failures: dict[tuple[TopicPartition, int], Failure] = {}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Other copies take over these partitions, and count attempts from 0."""
        gone = set(partitions)
        self._failures = {key: f for key, f in self._failures.items() if key[0] not in gone}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Forget the failures below these offsets."""
        for key in [k for k in self._failures if k[0] in offsets and k[1] < offsets[k[0]].offset]:
            del self._failures[key]

    def try_or_give_up(self, attempt: Attempt) -> bool:
        """Whether the record is done, possibly as a retry or dead letter; if not, the transaction is
        broken."""
        while self._has_attempts(attempt):
            # decisions/0010: results are sent when the handler has returned, so there is nothing to undo.
            error = self._try(attempt.origin)
            if error is None:
                return True
            self._note_failure(attempt, error)
            if self._has_attempts(attempt):
                self._clock.sleep_ms(self._settings.retry_backoff_ms)
            if self._transaction.is_broken:
                return False
        self._give_up(attempt, self._failures[attempt.key])
        return True

    def refused(self, attempt: Attempt, error: EosdbError) -> None:
        """The record's results were refused at the commit. Raises `error` if they were a retry or a dead
        letter, and HandlerFailedError."""
        if not self._has_attempts(attempt):
            raise error
        self._note_failure(attempt, error)

    def _has_attempts(self, attempt: Attempt) -> bool:
        """Whether it may be tried again in this topic."""
        failure = self._failures.get(attempt.key)
        here = 0 if failure is None else failure.attempts - attempt.before
        return here < self._settings.max_attempts

    def _note_failure(self, attempt: Attempt, error: Exception) -> None:
        """Raises HandlerFailedError if the record has failed for good and there is no dead letter topic."""
        known = self._failures.get(attempt.key)
        count = (attempt.before if known is None else known.attempts) + 1
        now = self._clock.time_ms()
        failure = Failure.of(attempt.origin, error, self._group_id, count, now)
        self._failures[attempt.key] = failure
        self._metrics.count("failed")
        if self._settings.dead_letter_topic is None and not self._has_attempts(attempt):
            raise HandlerFailedError(
                f"{attempt.tp} offset {attempt.record.offset}: failed {count} times, last with "
                f"{failure.error}: {failure.message}. Nothing of the record is committed; fix the "
                "handler, or set a dead_letter_topic"
            ) from error

    def _try(self, origin: ConsumerRecord) -> Exception | None:
        """Run the handler, then send its results. Returns why that failed."""
        transaction, start = self._transaction, self._metrics.now_ns()
        try:
            results = self._results(origin)
        except Exception as error:
            return error
        assert not transaction.is_broken
        # Interrupted between two results, the transaction must not be committed.
        transaction.is_broken = bool(results)
        for result in results:
            was_refused = transaction.is_refused
            try:
                transaction.send(result)
            except FAULTS_OF_RESULTS as error:
                if was_refused:
                    raise  # An earlier send was refused, and which record's it was is not known.
                return error
        transaction.is_broken = False
        latency_ms = (self._metrics.now_ns() - start) / 1_000_000
        self._metrics.record({"process": 1}, {"process-latency": latency_ms})
        return None

    def _results(self, origin: ConsumerRecord) -> list[ProducerRecord]:
        """What the handler returns for the record, ready to be sent."""
        given = self._settings.deserialized(origin)
        returned = self._handler(given)
        if returned is None:
            return []
        one = isinstance(returned, (ProducerRecord, bytes, str))
        results = [returned] if one else list(returned)  # type: ignore[arg-type]
        return [self._ready(given, result) for result in results]

    def _ready(self, given: ConsumerRecord, result: object) -> ProducerRecord:
        if isinstance(result, (bytes, str)):
            result = ProducerRecord(value=result, key=given.key)
        if not isinstance(result, ProducerRecord):
            raise TypeError(
                f"the handler returned {result!r:.80}; expected bytes, str, ProducerRecord, several of "
                "those, or None"
            )
        topic = result.topic or self._sink
        if topic is None:
            raise TypeError(f"{result!r:.80} has no topic, and the processor has no sink")
        return replace(
            result,
            topic=topic,
            key=serialized("key", result.key, self._settings.key_serializer),
            value=serialized("value", result.value, self._settings.value_serializer),
        )

    def _give_up(self, attempt: Attempt, failure: Failure) -> None:
        """Send it to the next retry topic, or to the dead letter topic."""
        settings, record = self._settings, attempt.record
        stage = 0
        if attempt.tp.topic in settings.retry_topics:
            stage = settings.retry_topics.index(attempt.tp.topic) + 1
        is_dead = stage == len(settings.retry_topics)
        if not is_dead:
            due_ms = self._clock.time_ms() + settings.retry_delays_ms[stage]
            failure = replace(failure, due_ms=due_ms)
        self._transaction.send(
            ProducerRecord(
                topic=settings.own_topics[stage],
                key=record.key,
                value=record.value,
                headers=failure.mark(record.headers),
                timestamp=record.timestamp,
            )
        )
        self._metrics.count("dead-lettered" if is_dead else "retried")
