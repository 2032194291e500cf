"""Completes batches from the broker's responses: stored, sent again, split or failed, with the effect on
later sequences.

The rules are Kafka's (Sender.completeBatch and TransactionManager, KIP-360), but a batch that may be stored
under one identity is never sent under another, because it could be stored twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from eosdb.client.answers import is_lost, may_be_repeated
from eosdb.client.producer.accumulator import ProducerBatch, RecordAccumulator
from eosdb.client.producer.state import TransactionManager
from eosdb.errors import (
    DuplicateSequenceNumberError,
    EosdbError,
    InvalidProducerEpochError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnknownProducerIdError,
    in_doubt,
)
from eosdb.model.metrics import Metrics
from eosdb.model.requests import Produce
from eosdb.model.values import ProduceResult, ProducerIdAndEpoch, TopicPartition


class BatchCompletion:
    """Completes batches from their responses (Kafka: Sender.completeBatch); sends nothing."""

    def __init__(
        self, manager: TransactionManager, accumulator: RecordAccumulator, metrics: Metrics
    ) -> None:
        self._settings = manager.settings
        self._manager = manager
        self._accumulator = accumulator
        self._metrics = metrics
        self.to_bump: set[TopicPartition] = set()
        """Partitions whose batches need a new epoch, which they get when none of them is in flight."""
        self._finished: deque[ProducerBatch] = deque()
        """The batches whose callbacks are due."""
        self._expires_ms = 0
        """The earliest time (monotonic ms) at which a batch can exceed delivery_timeout_ms."""
        self._may_be_unresolved = False
        """Whether a batch was given up since `resolve` last checked the sequences."""

    def call_back(self) -> bool:
        """Call the delivery callbacks of finished batches, once all states are final. Returns whether
        there were any."""
        are_any = bool(self._finished)
        while self._finished:
            self._finished[0].call_back()
            self._finished.popleft()
        return are_any

    # -- an answer ------------------------------------------------------------------------------

    def complete(
        self,
        batch: ProducerBatch,
        identity: ProducerIdAndEpoch | None,
        was_first: bool,
        answer: ProduceResult | EosdbError,
        now_ms: int,
    ) -> None:
        """Handle one partition's response to one attempt, made under `identity`."""
        error = answer if isinstance(answer, EosdbError) else answer.error
        if isinstance(answer, ProduceResult) and error is None:
            self._stored(batch, answer, now_ms)
            return
        if isinstance(error, DuplicateSequenceNumberError):
            self._stored(batch, ProduceResult(duplicate=True), now_ms)
            return
        assert error is not None
        if isinstance(answer, ProduceResult):
            self._metrics.error(error)
        if batch.done:
            return
        if is_lost(error) or may_be_repeated(error):
            self._repeat(batch, error, now_ms)
        elif isinstance(error, MessageTooLargeError) and len(batch.records) > 1:
            self._split(batch)
        elif identity is None:
            self._fail(batch, error)
        elif isinstance(error, OutOfOrderSequenceNumberError) and not was_first:
            self._repeat(batch, error, now_ms)  # An earlier batch is missing, and still in flight.
        elif self._manager.transactional_id is None and isinstance(
            error, (UnknownProducerIdError, InvalidProducerEpochError)
        ):
            # The broker accepts the batch only under a new producer epoch.
            self.to_bump.add(batch.tp)
            self._manager.progress(batch.tp).in_doubt = False
            self._repeat(batch, error, now_ms)
        else:
            self._refused(batch, error)

    def _stored(self, batch: ProducerBatch, result: ProduceResult, now_ms: int) -> None:
        if batch.identity is not None:
            self._manager.progress(batch.tp).acknowledge(batch, now_ms)
        if batch.done:
            return
        count = len(batch.records)
        self._metrics.record(
            {
                "record-send": count,
                "byte": batch.size,
                "batch": 1,
                "duplicate-batches": result.duplicate,
            },
            {"batch-size": batch.size, "records-per-batch": count},
        )
        batch.result = result
        if batch.callbacks:
            self._finished.append(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Replace a batch that is too large with its halves, which take over its sequences."""
        self._accumulator.most_bytes = self._settings.batch_size
        halves = batch.split()
        if batch.identity is not None:
            self._manager.progress(batch.tp).replace(batch, halves)
        for half in reversed(halves):
            self._accumulator.put_back(half)

    def _repeat(self, batch: ProducerBatch, error: EosdbError, now_ms: int) -> None:
        if batch.attempts > self._settings.retries:
            self._fail(batch, error)
            return
        batch.retry_at_ms = now_ms + self._settings.retry_backoff_ms
        self._accumulator.put_back(batch)

    def _refused(self, batch: ProducerBatch, error: EosdbError) -> None:
        """Fail a batch that the broker will never store; the sequences after it need a new epoch."""
        if batch.in_doubt:
            in_doubt(error)  # An earlier attempt had no response, and may be stored.
        batch.in_doubt = False
        self._fail(batch, error)
        if self._manager.transactional_id is None and not self._manager.is_fatal_state:
            self.to_bump.add(batch.tp)

    def _fail(self, batch: ProducerBatch, error: EosdbError) -> None:
        self._manager.failed(error, Produce)
        self.give_up(batch, error)

    def give_up(self, batch: ProducerBatch, error: EosdbError) -> None:
        """Fail the batch without waiting any longer; whether it is stored may be unknown."""
        if batch.in_doubt:
            in_doubt(error)
        batch.error = error  # Set first: after an interrupt, futures already have the error.
        self._accumulator.remove(batch)
        self._may_be_unresolved = True
        if batch.identity is not None:
            progress = self._manager.progress(batch.tp)
            progress.in_doubt |= batch.in_doubt or batch.is_sent
            progress.drop(batch)
        self._metrics.count("record-error", len(batch.records))
        self._metrics.error(error)
        if batch.callbacks:
            self._finished.append(batch)

    # -- an interrupt ---------------------------------------------------------------------------

    def mend(self, in_hand: Iterable[ProducerBatch], on_the_way: Iterable[ProducerBatch]) -> None:
        """Repair the state after a signal has interrupted a step. Batches that are in no queue and not in
        flight are sent again, or finished. Without such batches, nothing changes. `in_hand` are the batches
        that were taken last for sending."""
        self._accumulator.recount()
        waiting = self._accumulator.waiting()
        sent = {id(batch) for batch in (*waiting, *on_the_way)}
        batches = {id(batch): batch for batch in in_hand}
        for _, progress in self._manager.partitions_in_progress():
            batches |= {id(batch): batch for batch in progress.unacknowledged}
        for batch in waiting:
            if batch.identity is not None and id(batch) not in batches:
                # The interrupt came before the batch had both its producer id and its sequence.
                batch.identity, batch.serial = None, -1
        for batch in [*batches.values(), *waiting]:
            if batch.parts:
                self._mend_split(batch, sent)
            elif batch.done:
                self._accumulator.remove(batch)
                if batch.identity is not None:
                    self._manager.progress(batch.tp).drop(batch)
                if batch.callbacks and batch not in self._finished:
                    self._finished.append(batch)
            elif id(batch) not in sent:
                self._put_back(batch)

    def _mend_split(self, batch: ProducerBatch, sent: set[int]) -> None:
        if batch.identity is not None:
            self._manager.progress(batch.tp).drop(batch)
        for part in batch.parts:
            if part.parts:
                self._mend_split(part, sent)
            elif not part.done and id(part) not in sent:
                self._put_back(part)

    def _put_back(self, batch: ProducerBatch) -> None:
        """Send the batch again as after a lost response: it may have arrived."""
        batch.is_sent = False
        batch.in_doubt = True
        if batch.identity is not None:
            self._manager.progress(batch.tp).restore(batch)
        self._accumulator.put_back(batch)

    # -- time -----------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Fail the batches that were not stored within delivery_timeout_ms."""
        if now_ms < self._expires_ms:
            return
        limit = self._settings.delivery_timeout_ms
        batches = self._accumulator.waiting()
        for _, progress in self._manager.partitions_in_progress():
            batches += [batch for batch in progress.unacknowledged if batch.is_sent]
        self._expires_ms = min([now_ms, *[batch.created_ms for batch in batches]]) + limit
        old = [batch for batch in batches if now_ms - batch.created_ms >= limit]
        for batch in old:
            is_open = batch.in_doubt or batch.is_sent
            are = "may or may not be" if is_open else "are not"
            error = RequestTimedOutError(
                f"{batch.tp}: no answer within delivery_timeout_ms={limit}; the batch's "
                f"{len(batch.records)} records {are} stored"
            )
            error.outcome = "unknown" if is_open else "not written"
            self._fail(batch, error)

    # -- unresolved sequences -------------------------------------------------------------------

    def resolve(self, identity_of: Callable[[], ProducerIdAndEpoch | None]) -> None:
        """Begin a new epoch if sequences of a partition are unresolved and no batch in flight can resolve
        them."""
        if not (self._may_be_unresolved or self.to_bump):
            return
        manager = self._manager
        if manager.transactional_id is not None or manager.is_in_error:
            return
        self._may_be_unresolved = False
        for tp, progress in manager.partitions_in_progress():
            if progress.identity == manager.identity and progress.is_unresolved:
                self._may_be_unresolved = True
                if not progress.unacknowledged:
                    self.to_bump.add(tp)
        ready = {
            tp
            for tp in self.to_bump
            if not any(batch.is_sent for batch in manager.progress(tp).unacknowledged)
        }
        if not ready:
            return
        used = {manager.progress(tp).identity for tp in ready}
        if manager.identity in used:
            manager.identity = manager.next_local_epoch()
            self._metrics.count("epoch-bump")
        identity = identity_of()
        if identity is None:
            return  # The last epoch is used; a new producer id was requested.
        for tp in ready:
            self._begin_epoch(tp, identity)
        self.to_bump -= ready

    def _begin_epoch(self, tp: TopicPartition, identity: ProducerIdAndEpoch) -> None:
        progress = self._manager.progress(tp)
        if progress.in_doubt:
            for batch in [b for b in progress.unacknowledged if b.attempts]:
                error = OutOfOrderSequenceNumberError(
                    f"{tp}: an earlier batch got no answer, so whether this one is stored "
                    "cannot be known; it was not sent again, because it could be stored twice"
                )
                self.give_up(batch, in_doubt(error))
        progress.rewrite(identity)
