"""The processor: a loop that consumes, processes and produces records exactly once.

Records are read as a member of a group. The handler's results and the offsets go into one transaction,
which carries the group metadata (KIP-447), so a copy that has lost its partitions cannot commit. Retries,
dead letters and postponed records go into the transaction that also commits the record's offset.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from eosdb.client.answers import is_lost, may_be_repeated
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.consumer.membership import MEMBERSHIP_ERRORS
from eosdb.client.processor.config import ProcessorSettings
from eosdb.client.processor.failure import read_failure
from eosdb.client.processor.handlers import (
    AnyHandler,
    check_portion,
    is_asynchronous,
    takes_transaction,
)
from eosdb.client.processor.idle import LOOK_EVERY_MS, GroupIdleness
from eosdb.client.processor.lanes import MOST, Lanes
from eosdb.client.processor.record_handler import Attempt, RecordHandler
from eosdb.client.processor.transaction import (
    FAULTS_OF_RESULTS,
    ProcessingTransaction,
    ProducerTransaction,
)
from eosdb.client.processor.unit_transaction import ProcessorFile, UnitTransaction
from eosdb.client.producer.producer import Producer
from eosdb.client.transport import Presence, Transport, presence
from eosdb.errors import (
    ConfigError,
    DatabaseLockedError,
    EosdbError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    WakeupError,
)
from eosdb.model.clock import Clock
from eosdb.model.config import checked_settings
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import error_text
from eosdb.model.protocol.consumer_protocol import with_owner
from eosdb.model.records.failure_headers import postponed_topic
from eosdb.model.reports import ProcessReport
from eosdb.model.requests import Topic
from eosdb.model.validation import check_whole
from eosdb.model.values import ConsumerRecord, TopicPartition
from eosdb.system.signals import stopped_by_signals

_POLL_MS: Final = 1_000
_LULL_MS: Final = 5
"""A transaction is committed when no record has come for so long, or at once if its last record came after
a longer pause: results are not kept back, and a sender at full speed is not held up by a commit for each of
its records."""
_FROZEN_MS: Final = 1_000
"""If the time of day does not move for so long (freezegun), no retry becomes due."""
_RATES: Final = ("process", "commit")
_PARTITION: Final = attrgetter("topic", "partition")
_NO_MEMBER: Final = (GroupIdNotFoundError, IllegalGenerationError, UnknownMemberIdError)
"""After these errors the consumer joins its group again. A group without offsets is deleted when its last
member is gone."""
_GOES_ON_AFTER: Final = (
    *MEMBERSHIP_ERRORS,
    GroupIdNotFoundError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    TransactionAbortableError,
    UnstableOffsetCommitError,
)
"""After these errors the open transaction is rolled back, and its records are processed again."""


class Processor:
    """Runs a handler on the records of topics, as one of any number of copies that share the partitions.

    `run` belongs to one thread; `stop` and `metrics` may be called from any thread.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        topics: str | Iterable[str] | re.Pattern[str],
        handler: AnyHandler,
        sink: str | None,
        group_id: str,
        transactional_id: str | None,
        file: ProcessorFile,
        /,
        **config: Any,
    ) -> None:
        if "until_idle_ms" in config:
            raise ConfigError("until_idle_ms: give it to run(until_idle_ms=…), or to eosdb.process")
        self._settings = checked_settings(ProcessorSettings, "processor", config, "until_idle_ms")
        if "max_batch" in config and not self._settings.batch:
            raise ConfigError(
                f"max_batch: got {config['max_batch']!r} without batch=True, expected a handler of "
                "batches; add batch=True, or leave max_batch out"
            )
        transactional_id = group_id if transactional_id is None else transactional_id
        for name, given in (("group_id", group_id), ("transactional_id", transactional_id)):
            if not isinstance(given, str) or not given:
                raise ConfigError(f"{name}: got {given!r}, expected text that is not empty")
        self._transport = transport
        self._clock = clock
        self._group_id = group_id
        self._transactional_id = transactional_id
        self._metrics = Metrics(clock, _RATES)
        self._consumer = Consumer(transport, clock, group_id, **self._settings.for_consumer())
        self._transaction = self._transaction_of(handler, file)
        self._make_topic = file.make_topic
        self._postponed_topic = postponed_topic(group_id)
        self._topics = self._settings.subscription(topics, self._postponed_topic)
        # The group reads its own topic from the beginning, even before its first commit there.
        self._consumer._fetcher.read_whole = own = {self._postponed_topic}
        self._idleness = GroupIdleness(
            transport, clock, group_id, self._topics, self._settings.for_consumer(), own
        )
        self._waiting = partial(file.waiting, self._postponed_topic)
        self._records = RecordHandler(
            handler, file.path, sink, group_id, self._settings, self._transaction,
            self._existing_topic,
        )  # fmt: skip
        self._lanes = Lanes(self._settings.workers, self._records, clock)
        self._presence: Presence | None = None
        """A lock by which other processes notice that this copy, owner of its transactions, has died."""
        self._own_id: str | None = None
        self._current: Attempt | None = None
        self._broken_by: EosdbError | None = None
        self._alone = 0
        """This many next records get a transaction each, to find the record whose results are refused."""
        self._lull_ms = _LULL_MS
        self._stopping = False  # Set without a lock, because a signal handler may call `stop`.

    def _transaction_of(self, handler: AnyHandler, file: ProcessorFile) -> ProcessingTransaction:
        if is_asynchronous(handler):
            raise ConfigError(
                f"handler: {handler!r:.80} is asynchronous, and here nobody would await it; use `await "
                "db.process(…)` of a database opened with eosdb.aio.connect, or a plain function"
            )
        check_portion(handler, self._settings.batch)
        needs = self._consumer, self._clock, self._metrics
        if not takes_transaction(handler):
            return ProducerTransaction(*needs, self._make_producer)
        if self._settings.workers > 1:
            raise ConfigError(
                f"workers: got {self._settings.workers} for a handler with a transaction, which holds "
                "the file's write lock, so only one can run; do slow work in a handler(record), and "
                "store its results in a handler(record, tx) of their topic"
            )
        return UnitTransaction(*needs, file.begin)

    # -- the user's calls -----------------------------------------------------------------------

    def run(self, until_idle_ms: int | None = None) -> ProcessReport:
        """Process records until `stop`, SIGTERM or SIGINT, or until no record has arrived for
        `until_idle_ms` and the whole group has read everything.

        While other members have unread records, an idle copy keeps waiting, so that it can take over their
        partitions; if they make no progress, the logger `eosdb.processor` warns. At its end, `run`
        finishes the current record, commits and leaves the group; a second SIGINT aborts the record with
        its transaction, and raises KeyboardInterrupt. If the run fails after a signal, the signal is sent
        again, so it has its usual effect. Signals are handled in the main thread only. Raises
        HandlerFailedError when a record has failed for good and there is no dead_letter_topic,
        FencedInstanceIdError, and errors that a retry cannot fix.
        """
        if until_idle_ms is not None:
            check_whole("until_idle_ms", until_idle_ms, 0)
        with (
            stopped_by_signals(self.stop, self._failed_after),
            contextlib.ExitStack() as closing,
        ):
            closing.callback(self._release)
            closing.enter_context(self._consumer)  # The consumer's close commits completed records.
            if "group_instance_id" in self._settings.consumer:
                # After a restart under the same id: end the open transaction of a killed run.
                self._transaction.prepare()
            self._consumer.subscribe(
                self._topics, on_revoke=self._before_rebalance, on_lost=self._break_off
            )
            closing.push(self._lanes.end)  # The threads end before other members get partitions.
            self._go_on(until_idle_ms)
        return self._report()

    def _failed_after(self, error: Exception, number: signal.Signals) -> None:
        catalog.SIGNAL_SENT_AGAIN.say(
            cause=error_text(error), group_id=self._group_id, signal=number.name, error=error
        )

    def _release(self) -> None:
        self._transaction.close()
        if self._presence is not None:
            self._presence.end()

    def stop(self) -> None:
        """Make `run` finish the records in progress, commit and return."""
        self._stopping = True
        self._lanes.is_stopped = True
        self._consumer.wakeup()

    def _report(self) -> ProcessReport:
        committed, metrics = self._transaction.committed, self.metrics()
        counted = ("processed", "produced", "retried", "dead_lettered", "postponed")
        return ProcessReport(
            **{name: committed[name] for name in counted},
            failed=int(metrics.get("failed-total", 0)),
            commits=int(metrics.get("commit-total", 0)),
            aborts=int(metrics.get("abort-total", 0)),
            metrics=metrics,
        )

    def metrics(self) -> dict[str, float]:
        """Return this copy's metrics: `process-total`, `process-latency-avg`, `failed-total`,
        `retried-total`, `dead-lettered-total`, `postponed-total`, `commit-total`, `abort-total`, errors by
        name; and the metrics of its consumer and producer."""
        producer = self._transaction.producer
        theirs = {} if producer is None else producer.metrics()
        return {**theirs, **self._consumer.metrics(), **self._metrics.snapshot()}

    # -- the loop -------------------------------------------------------------------------------

    def _go_on(self, until_idle_ms: int | None) -> None:
        busy_ms = moved_ms = self._clock.monotonic_ms()
        seen_ms = 0
        wait_ms = patience_ms = _POLL_MS if until_idle_ms is None else min(_POLL_MS, until_idle_ms)
        while not self._stopping:
            worked = self._attempt(partial(self._read_and_process, wait_ms))
            now, time_ms = self._clock.monotonic_ms(), self._clock.time_ms()
            if time_ms != seen_ms:
                seen_ms, moved_ms = time_ms, now
            if worked or self._transaction.records:
                busy_ms, wait_ms = now, patience_ms
            elif until_idle_ms is not None and now - busy_ms >= until_idle_ms:
                if not self._attempt(partial(self._is_busy, now - moved_ms >= _FROZEN_MS)):
                    return
                wait_ms = LOOK_EVERY_MS
        while self._lanes.running:
            self._attempt(partial(self._send_ended, 0))

    def _is_busy(self, is_frozen: bool) -> bool:
        """Whether the group has not read everything, or a retry waits, or a record that is due soon. Other
        records that a handler postponed may wait (decisions/0091)."""
        if not self._idleness.is_idle():
            return True
        settings, postponed = self._settings, self._transaction.committed["postponed"]
        if is_frozen or not (settings.retry_delays_ms or postponed):
            return False
        soon_ms = self._clock.time_ms() + settings.retry_backoff_ms
        try:
            waiting = [read_failure(record.headers) for record in self._waiting()]
        except UnknownTopicOrPartitionError:
            return False  # The topic was deleted.
        ours = [each for each in waiting if each and each.group_id == self._group_id]
        return any(each.retries or each.due_ms <= soon_ms for each in ours)

    def _attempt(self, action: Callable[[], bool]) -> bool:
        """Run `action`, after rolling back the remains of a failed attempt; errors that a retry cannot
        fix are raised."""
        try:
            if self._transaction.is_broken:
                self._mend()
            return action()
        except WakeupError:
            return False
        except EosdbError as error:
            self._metrics.error(error)
            self._transaction.is_broken = True
            self._broken_by = error
            if isinstance(error, FAULTS_OF_RESULTS):
                self._find_the_culprit(error)
            elif isinstance(error, DatabaseLockedError) or is_lost(error) or may_be_repeated(error):
                self._clock.sleep_ms(self._settings.retry_backoff_ms)
            elif not isinstance(error, _GOES_ON_AFTER):
                raise
            if isinstance(error, _NO_MEMBER):
                self._consumer.enforce_rebalance()
            return True
        except BaseException:
            self._transaction.is_broken = True  # `close` must not commit this transaction.
            raise
        finally:
            self._records.tell()

    def _mend(self) -> None:
        count, error = self._transaction.taken_in, self._broken_by
        self._lanes.drop()
        self._transaction.mend()
        self._broken_by = None
        if count:
            catalog.PROCESSED_AGAIN.say(
                cause="the partitions have moved" if error is None else error_text(error),
                group_id=self._group_id,
                records=count,
                error=error,
            )

    def _read_and_process(self, wait_ms: int) -> bool:
        """Poll once and process the records. Returns whether anything was done."""
        transaction, settings = self._transaction, self._settings
        size = 1 if self._alone else settings.transaction_size
        began_ms = self._clock.monotonic_ms()
        records = self._poll(self._patience_ms(wait_ms), size)
        if records:
            self._lull_ms = _LULL_MS if self._clock.monotonic_ms() <= began_ms + _LULL_MS else 0
        if transaction.is_broken:
            # A rebalance broke the transaction; the new records are of another generation.
            self._put_back(records)
            return True
        done = 0
        try:
            with transaction.batch() as made_anew:
                self._lanes.drop(made_anew)
                for together in self._portions(records):
                    if self._stopping or not self._process(together):
                        break
                    done += len(together)
                    if transaction.age_ms() > settings.transaction_interval_ms:
                        self._commit()
        finally:
            self._put_back(records[done:])
        self._send_ended(min(size, MOST) // 2)
        is_old = transaction.age_ms() >= settings.transaction_interval_ms
        is_last = not (records or self._lanes.in_hand)
        must_end = is_old or is_last or not transaction.outlives_poll
        is_due = transaction.records >= size or (must_end and transaction.records > 0)
        if is_due and not transaction.is_broken:
            self._commit()
            self._alone = max(self._alone - 1, 0)
        return bool(records) or is_due or self._lanes.in_hand > 0

    def _poll(self, patience_ms: int, size: int) -> list[ConsumerRecord]:
        """Poll for the records that fit into a transaction of this size."""
        consumer, settings, lanes = self._consumer, self._settings, self._lanes
        most = min(size, settings.max_batch) if settings.batch else size - self._transaction.records
        if settings.workers > 1:
            most = min(size, MOST) - lanes.in_hand
            patience_ms = 0 if lanes.running else patience_ms
        if most > 0:
            return consumer.poll(patience_ms, most)
        # The transaction takes no more records: poll only for the heartbeat and rebalances.
        paused = consumer.assignment() - consumer.paused()
        consumer.pause(paused)
        try:
            return consumer.poll(patience_ms, 1)
        finally:
            consumer.resume(paused & consumer.assignment())

    def _send_ended(self, enough: int) -> bool:
        """Send the results of handlers in threads, until at most `enough` records are in progress."""
        settings, transaction, lanes = self._settings, self._transaction, self._lanes
        for run in lanes.ended(enough):
            self._current = attempt = run.attempt
            if self._records.try_once(attempt, run=run):
                transaction.complete(attempt.tp, [attempt.record.offset])
                lanes.release(run)
            elif transaction.is_broken:
                break
            else:
                lanes.again(run, settings.retry_backoff_ms)
            is_old = transaction.age_ms() > settings.transaction_interval_ms
            if is_old or transaction.records >= settings.transaction_size:
                self._commit()
        return True

    def _commit(self) -> None:
        self._records.committed(self._transaction.commit())

    def _patience_ms(self, wait_ms: int) -> int:
        """How long to wait for records: until the transaction must end, or a failed record's pause has."""
        ends = self._lanes.waits_ms()
        if self._transaction.records:
            left_ms = self._settings.transaction_interval_ms - self._transaction.age_ms()
            ends.append(left_ms if self._lanes.in_hand else min(left_ms, self._lull_ms))
        return max(min(_POLL_MS, *ends), 0) if ends else wait_ms

    def _put_back(self, records: list[ConsumerRecord]) -> None:
        """Seek back to the first of the records of each partition."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for tp, offset in first.items():
            self._consumer.seek(tp, offset)

    # -- records --------------------------------------------------------------------------------

    def _portions(self, records: list[ConsumerRecord]) -> Iterable[list[ConsumerRecord]]:
        """Split the records: by partition for batches and workers, otherwise one by one."""
        if not self._settings.batch and self._settings.workers == 1:
            return ([record] for record in records)
        return (list(part) for _, part in groupby(records, _PARTITION))

    def _process(self, records: list[ConsumerRecord]) -> bool:
        """Process records of one partition. Returns False if they must be read again."""
        tp = TopicPartition(records[0].topic, records[0].partition)
        attempts = self._attempts(tp, records)
        ours = [attempt for attempt in attempts if attempt.is_ours]
        offsets = [attempt.record.offset for attempt in ours]
        self._current, last = attempts[-1], attempts[-1].record.offset
        # A record that is not ours counts when those before it are complete: few are unfinished at once.
        self._transaction.take_in(tp, offsets, records[0].offset)
        if self._settings.workers > 1:
            for attempt in ours:
                self._lanes.put(attempt)
        elif ours and not self._records.process_all(ours):
            if len(ours) > 1:
                self._alone = len(ours)  # Single transactions show the record at fault.
            return False
        if last not in offsets[-1:]:
            self._transaction.pass_by(tp, last)
        return True

    def _attempts(self, tp: TopicPartition, records: list[ConsumerRecord]) -> list[Attempt]:
        was_complete = self._transaction.progress(tp).was_complete
        if tp.topic != self._postponed_topic:
            return [Attempt(tp, each, each, 0, not was_complete(each.offset)) for each in records]
        attempts: list[Attempt] = []
        for record in records:
            earlier, is_ours = read_failure(record.headers), not was_complete(record.offset)
            if earlier is None:
                attempts.append(Attempt(tp, record, record, 0, is_ours))
                continue
            # Records of a group whose topic has the same name are left to that group.
            is_ours = is_ours and earlier.group_id == self._group_id
            origin = earlier.back_at_origin(record)
            attempts.append(Attempt(tp, record, origin, earlier.attempts, is_ours, earlier.retries))
        return attempts

    def _existing_topic(self) -> str:
        """The topic of the group's postponed records, which is created if it does not exist."""
        try:
            self._consumer._broker.ask(Topic(self._postponed_topic, may_create=False))
        except UnknownTopicOrPartitionError:
            self._records.committed(self._transaction.let_go())  # Creating a topic needs the lock.
            self._make_topic(self._postponed_topic)
            self._consumer.enforce_rebalance()
        return self._postponed_topic

    def _find_the_culprit(self, error: EosdbError) -> None:
        """Handle the late refusal of a result, when its record is not known. Each record is processed
        again in its own transaction, so that the next refusal names the record, which has then failed.
        Raises `error` if there is no record to blame."""
        if self._transaction.taken_in > 1:
            self._alone = self._transaction.taken_in
        elif self._current is None:
            raise error
        else:
            self._records.refused(self._current, error)

    # -- rebalances -----------------------------------------------------------------------------

    def _before_rebalance(self, partitions: list[TopicPartition]) -> None:
        """Commit the completed records while this copy still owns the partitions."""
        try:
            if not self._transaction.is_broken:
                self._commit()
        except EosdbError as error:
            self._metrics.error(error)
            self._transaction.is_broken, self._broken_by = True, error
        self._forget(partitions)

    def _break_off(self, partitions: list[TopicPartition]) -> None:
        """Mark the open transaction as broken: other members may own the partitions already."""
        self._transaction.is_broken = True
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        self._lanes.drop(partitions)
        self._transaction.drop(partitions)
        self._records.forget(partitions)

    def _make_producer(self) -> Producer:
        """Create this copy's producer. Its transactional id is unique to the copy, which is fenced by its
        group membership (KIP-447)."""
        if self._own_id is None:
            member = self._consumer.group_metadata()
            name = member.group_instance_id or member.member_id
            self._own_id = f"{self._transactional_id}-{name}"
            # decisions/0034: no later copy takes this id, so its free lock shows that the process has died.
            if not member.group_instance_id:
                owned_id = with_owner(self._transactional_id, member.member_id)
                self._presence = presence(self._transport, owned_id)
                if self._presence is not None:
                    self._own_id = owned_id
        config = self._settings.for_producer(self._own_id)
        return Producer(self._transport, self._clock, **config)
