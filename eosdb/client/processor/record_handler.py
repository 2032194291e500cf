"""Processes one record until it has results, or is sent on: to the group's topic of postponed records,
or to the dead letter topic.

A transaction holds all results of a record or none. So a failing record does not affect earlier ones, and
can be tried again in the same transaction. A line is logged for each failed attempt, and for each dead
letter once its transaction is committed. A transaction with the user's tables holds the file's only write
lock, so nothing is logged before its release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from eosdb.client.processor import handlers
from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.failure import BatchFailed, Failure, RetryAt
from eosdb.client.processor.handlers import AnyHandler
from eosdb.client.processor.progress import is_complete
from eosdb.client.processor.transaction import ProcessingTransaction
from eosdb.errors import EosdbError, HandlerFailedError, InvalidTimestampError
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice, Untold, one_line
from eosdb.model.records.serializing import serialized
from eosdb.model.values import ConsumerRecord, OffsetAndMetadata, ProducerRecord, TopicPartition
from eosdb.model.words import counted


class Attempt(NamedTuple):
    """A record in processing: as it was read, and as it was in its original topic."""

    tp: TopicPartition
    record: ConsumerRecord
    origin: ConsumerRecord
    before: int = 0
    """The number of attempts in earlier topics."""
    is_ours: bool = True
    """Whether it is to be processed: it waited for no other group, and was not complete before."""
    retries: int = 0
    """How many of the `retry_delays_ms` it has waited for."""

    @property
    def is_back(self) -> bool:
        """Whether it has waited in the topic of its group."""
        return self.origin is not self.record

    @property
    def key(self) -> tuple[TopicPartition, int]:
        return self.tp, self.record.offset


@dataclass(slots=True, eq=False)
class Run:
    """An attempt in a worker thread, and its outcome."""

    attempt: Attempt
    context: Context = field(default_factory=copy_context)
    began_ns: int = -1
    """When the handler was called, in ns; negative if it was not."""
    results: list[ProducerRecord] = field(default_factory=list)
    error: BaseException | None = None
    span: Any = None  # The span that eosdb.integrations.tracing sets.
    due_ms: int = 0
    is_out: bool = False
    """Whether a thread has it, or will take it."""
    is_off: bool = False
    """Whether its results are no longer wanted: the record is read again, perhaps by another member."""

    @property
    def lane(self) -> tuple[TopicPartition, object]:
        """The partition and the key whose records keep their order; without a key, the offset."""
        record = self.attempt.record
        return self.attempt.tp, record.offset if record.key is None else record.key


class RecordHandler:
    """Runs the user's handler on one record after another, and counts the failures of each."""

    def __init__(
        self,
        handler: AnyHandler,
        file: str,
        sink: str | None,
        group_id: str,
        settings: ProcessorSettings,
        transaction: ProcessingTransaction,
        postponed_topic: Callable[[], str],
    ) -> None:
        self._handler = handler
        self._file = file
        self._sink = sink
        self._sends_bytes = sink is not None and (
            settings.key_serializer is None and settings.value_serializer is None
        )
        self.group_id = group_id
        self.settings = settings
        self.transaction = transaction
        self._clock = transaction.clock
        self._metrics = transaction.metrics
        self._postponed_topic = postponed_topic
        self._failures: dict[tuple[TopicPartition, int], Failure] = {}
        self._dead: set[tuple[TopicPartition, int]] = set()
        """The failed records that become dead letters when the transaction is committed."""
        self._untold = Untold()

    def tell(self) -> None:
        """Log failures and dead letters. While the transaction holds the write lock, leave this to a later
        call."""
        if not self.transaction.holds_lock:
            self._untold.tell()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the failures in these partitions: other copies take over, and count attempts from 0."""
        self._failures = {key: f for key, f in self._failures.items() if key[0] not in partitions}
        self._dead &= self._failures.keys()

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for key in list(self._failures):
            tp, offset = key
            if tp not in offsets or not is_complete(offsets[tp], offset):
                continue
            failure = self._failures.pop(key)
            if key in self._dead:
                self._dead.remove(key)
                topic = self.settings.dead_letter_topic
                self._log(catalog.DEAD_LETTER, failure, dead_letter_topic=topic)
        self.tell()

    def process_all(self, attempts: list[Attempt]) -> bool:
        """Process the records of one partition together, and a failing one by itself. Returns False if the
        transaction broke."""
        assert attempts, "records to process"
        assert attempts[0].tp == attempts[-1].tp, attempts[0]
        parts: list[tuple[list[Attempt], Exception | None]] = [(attempts, None)]
        while parts:
            part, error = parts.pop()
            if len(part) == 1:
                if not self.try_once(part[0], error):
                    self.committed(self.transaction.let_go())
                    self._clock.sleep_ms(self.settings.retry_backoff_ms)
                    if self.transaction.is_broken:
                        return False
                    parts.append((part, None))
                    continue
            elif error := self.process([attempt.origin for attempt in part]):
                if self.transaction.is_broken:
                    return False
                parts += _without_the_guilty(part, error)
                continue
            self.transaction.complete(part[0].tp, [attempt.record.offset for attempt in part])
            if parts and self.transaction.age_ms() > self.settings.transaction_interval_ms:
                self.committed(self.transaction.commit())
        return True

    def try_once(
        self, attempt: Attempt, error: Exception | None = None, run: Run | None = None
    ) -> bool:
        """Process the record, or send it on after its last attempt. Returns False if it must be tried
        again. `error` is the error of an attempt just made; `run` is an attempt in a worker thread."""
        if self._has_attempts(attempt):
            error = error or self.process([attempt.origin], run)
            if error is None:
                return True
            if isinstance(error, RetryAt):
                try:
                    error._check(self._clock.time_ms())
                except InvalidTimestampError as not_a_time:
                    error = not_a_time
                else:
                    self._postpone(attempt, error)
                    return not self.transaction.is_broken
            self._note_failure(attempt, error)
            if self._has_attempts(attempt):
                return False
            self._check_may_give_up(attempt, error)
            if self.transaction.is_broken:
                return False
        self._give_up(attempt, self._failures[attempt.key])
        return not self.transaction.is_broken

    def refused(self, attempt: Attempt, error: EosdbError) -> None:
        """Count a failure of a record whose results were refused at the commit. Raises `error` if the
        refused result was its retry or dead letter, and HandlerFailedError."""
        if not self._has_attempts(attempt):
            raise error
        self._note_failure(attempt, error)
        if not self._has_attempts(attempt):
            self._check_may_give_up(attempt, error)

    # -- eosdb.integrations.tracing wraps these methods ---------------------------------------------

    def process(self, origins: list[ConsumerRecord], run: Run | None = None) -> Exception | None:
        """Run the handler once, for a record or a batch, and send its results. With `run`, only send the
        results of that run. Returns the error of a failed attempt."""
        start = self._metrics.now_ns() if run is None else run.began_ns
        results: list[ProducerRecord] = []

        def make(tx: Any) -> list[ProducerRecord]:
            if run is not None and run.error is not None:
                raise run.error
            results.extend(self._results(origins, tx) if run is None else run.results)
            return results

        error = self.transaction.deliver(make)
        if error is None:
            tally, count = self.transaction.tally, len(origins)
            tally["processed"] += count
            tally["produced"] += len(results)
            latency_ms = (self._metrics.now_ns() - start) / 1_000_000
            self._metrics.observe("process-latency", latency_ms, "process", count)
        elif isinstance(error, BatchFailed) and len(origins) == 1:
            error = error.error
        return error

    def call(self, run: Run) -> None:
        """Run the handler, in any thread, unless the record has no attempt left."""
        run.began_ns, run.results, run.error = self._metrics.now_ns(), [], None
        try:
            if self._has_attempts(run.attempt):
                run.results = self._results([run.attempt.origin], None)
        except BaseException as error:
            run.error = error

    def send_failed(self, attempt: Attempt, failure: Failure, record: ProducerRecord) -> None:
        """Send a failed or postponed record to its next topic."""
        self.transaction.send(record)

    # -- small steps ----------------------------------------------------------------------------

    def _has_attempts(self, attempt: Attempt) -> bool:
        failure = self._failures.get(attempt.key) if self._failures else None
        if failure is None:
            return True
        here = failure.attempts - attempt.before
        assert here >= 0, here
        return here < self.settings.calls_before_delay(attempt.retries)

    def _note_failure(self, attempt: Attempt, error: Exception) -> None:
        self._failures[attempt.key] = failure = self._failure(attempt, error, 1)
        self._metrics.count("failed")
        if not catalog.ATTEMPT_FAILED.is_wanted:
            return
        step, delay_ms, step_text = self._next_step(attempt)
        self._log(
            catalog.ATTEMPT_FAILED,
            failure,
            trace=catalog.ATTEMPT_FAILED.traced(error),
            attempts=self.settings.calls,
            next_step=step,
            next_step_text=step_text,
            delay_ms=delay_ms,
        )

    def _next_step(self, attempt: Attempt) -> tuple[str, int, str]:
        """The next step after a failure: its name, the pause before it (ms), and a text about it."""
        settings = self.settings
        if self._has_attempts(attempt):
            pause_ms = settings.retry_backoff_ms
            return "retry", pause_ms, f"tried again in {pause_ms} ms"
        if settings.dead_letter_topic is None:
            return "stop", 0, "the processor stops: there is no dead_letter_topic"
        if attempt.retries < len(settings.retry_delays_ms):
            delay_ms = settings.retry_delays_ms[attempt.retries]
            return "retry_later", delay_ms, f"tried again in {delay_ms} ms; later records go on"
        return "dead_letter", 0, f"goes to the dead letter topic {settings.dead_letter_topic}"

    def _log(self, notice: Notice, failure: Failure, **values: Any) -> None:
        """Keep a line about a failed record for `tell`."""
        message = one_line(failure.message)
        self._untold.add(
            notice,
            topic=failure.topic,
            partition=failure.partition,
            offset=failure.offset,
            group_id=self.group_id,
            attempt=failure.attempts,
            error=failure.error,
            cause=f"{failure.error}: {message}" if message else failure.error,
            **values,
        )

    def _failure(self, attempt: Attempt, error: Exception, counted: int) -> Failure:
        earlier = self._failures.get(attempt.key)
        count = (attempt.before if earlier is None else earlier.attempts) + counted
        now = self._clock.time_ms()
        failure = Failure.of(attempt.origin, error, self.group_id, count, now)
        return replace(failure, retries=attempt.retries)

    def _check_may_give_up(self, attempt: Attempt, error: Exception) -> None:
        """Commit the records before this one and raise HandlerFailedError if there is no dead letter
        topic."""
        if self.settings.dead_letter_topic is not None:
            return
        self.committed(self.transaction.let_go())
        failure = self._failures[attempt.key]
        raise HandlerFailedError(
            f"{attempt.tp} offset {attempt.record.offset}: failed {counted(failure.attempts, 'time')}, "
            f"last with {failure.error}: {failure.message}. Nothing of the record is committed; fix the "
            "handler, or set a dead_letter_topic"
        ) from error

    def _results(self, origins: list[ConsumerRecord], tx: Any) -> list[ProducerRecord]:
        """Run the handler, and return its results ready to be sent."""
        given: list[ConsumerRecord] = []
        for origin in origins:
            try:
                given.append(self.settings.deserialized(origin))
            except Exception as error:
                raise BatchFailed(len(given), error) from error
        is_batch = self.settings.batch
        results = handlers.call(self._handler, given if is_batch else given[0], tx, self._file)
        # The records of a batch may have different keys, so its results have no key.
        key = None if is_batch else given[0].key
        return [self._ready(key, result) for result in results]

    def _ready(self, key: object, result: object) -> ProducerRecord:
        topic, value = self._sink, result
        if self._sends_bytes and type(result) is bytes and (key is None or type(key) is bytes):
            return ProducerRecord(value=result, key=key, topic=topic)
        if isinstance(result, ProducerRecord):
            topic, key, value = result.topic or topic, result.key, result.value
        elif type(result) is tuple and len(result) == 2:
            key, value = result
        elif not isinstance(result, (bytes, str)):
            raise TypeError(
                f"the handler returned a value of type {type(result).__name__}; expected bytes, str, "
                "a pair of key and value, ProducerRecord, a list of those, or None"
            )
        if topic is None:
            raise TypeError(
                "the handler returned a record without a topic, and the processor has no sink"
            )
        key = serialized("key", key, self.settings.key_serializer)
        value = serialized("value", value, self.settings.value_serializer)
        if isinstance(result, ProducerRecord):
            return replace(result, topic=topic, key=key, value=value)
        return ProducerRecord(value=value, key=key, topic=topic)

    def _postpone(self, attempt: Attempt, error: RetryAt) -> None:
        now = self._clock.time_ms()
        # A time that is over must not make a loop without a pause, if the record was postponed before.
        pause_ms = self.settings.retry_backoff_ms if attempt.is_back else 0
        failure = replace(self._failure(attempt, error, 0), retries=0)
        self._send_later(attempt, failure, "postponed", max(error.when_ms, now + pause_ms))

    def _give_up(self, attempt: Attempt, failure: Failure) -> None:
        delays, topic = self.settings.retry_delays_ms, self.settings.dead_letter_topic
        if attempt.retries < len(delays):
            due_ms = self._clock.time_ms() + delays[attempt.retries]
            failure = replace(failure, retries=attempt.retries + 1)
            self._send_later(attempt, failure, "retried", due_ms)
        elif topic is not None:
            self._send_on(attempt, failure, topic, "dead_lettered")
            self._dead.add(attempt.key)

    # decisions/0098: retries and postponed records are scheduled in a topic of their group.
    def _send_later(self, attempt: Attempt, failure: Failure, name: str, due_ms: int) -> None:
        if not self.transaction.is_broken:
            topic = self._postponed_topic()
        if not self.transaction.is_broken:
            self._send_on(attempt, replace(failure, due_ms=due_ms), topic, name, due_ms)

    def _send_on(
        self, attempt: Attempt, failure: Failure, topic: str, name: str, due_ms: int | None = None
    ) -> None:
        """Send the record to its next topic, and count it there. Its new timestamp keeps retention from
        removing it at once; the headers have the original timestamp."""
        key, value, headers = attempt.record.key, attempt.record.value, attempt.record.headers
        given: Any = {"headers": failure.mark(headers), "deliver_at": due_ms}
        sent_on = ProducerRecord(topic=topic, key=key, value=value, **given)
        self.send_failed(attempt, failure, sent_on)
        self._metrics.count(name.replace("_", "-"))
        self.transaction.tally[name] += 1


def _without_the_guilty(
    part: list[Attempt], error: Exception
) -> list[tuple[list[Attempt], Exception | None]]:
    """Split a failed batch into parts, the last one first, each with the error of an attempt just made. A
    record that the error names is a part of its own. Without such a record, each record is a part."""
    if isinstance(error, BatchFailed) and 0 <= error.index < len(part):
        at = error.index
        around = [(part[at + 1 :], None), (part[at : at + 1], error.error), (part[:at], None)]
        return [each for each in around if each[0]]
    of_each = error if isinstance(error, RetryAt) else None
    return [([attempt], of_each) for attempt in reversed(part)]
