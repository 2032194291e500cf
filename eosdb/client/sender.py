"""The sender: turns waiting batches into requests, and answers into results and states (Kafka: Sender).

Inline: it works when it is called, in the caller's thread. One request carries at most one batch for each
partition, so a partition's order is the order of its batches.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from eosdb.client.accumulator import ProducerBatch, RecordAccumulator
from eosdb.client.config import ProducerSettings
from eosdb.client.transaction_manager import ClientState, TransactionManager
from eosdb.client.transport import Transport
from eosdb.clock import Clock
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    DuplicateSequenceNumberError,
    EosdbError,
    InvalidProducerEpochError,
    ProducerFencedError,
    TransactionAbortableError,
)
from eosdb.model import ProduceResult, ProducerIdAndEpoch, RecordBatch, TopicPartition


class Sender:
    """One producer's requests. Its caller holds the producer's lock."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: ProducerSettings,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._manager = manager
        self._accumulator = accumulator
        self.metrics: Counter[str] = Counter()

    def send_all(self) -> None:
        """Send every waiting batch; afterwards every future is done."""
        while batches := self._accumulator.take_round():
            try:
                self._send_round(batches)
            finally:
                self._accumulator.taken(batches)

    def _send_round(self, batches: list[ProducerBatch]) -> None:
        """One request with at most one batch for each partition."""
        manager, settings = self._manager, self._settings
        if manager.state in (ClientState.ABORTABLE_ERROR, ClientState.FATAL_ERROR):
            assert manager.error is not None
            self._fail(batches, manager.error)
            return
        try:
            identity = self.identity() if settings.enable_idempotence else None
            if manager.transactional_id is not None:
                self._add_partitions({batch.tp for batch in batches})
            results = self._transport.produce(
                {batch.tp: self._request_of(batch, identity) for batch in batches},
                transactional_id=manager.transactional_id,
                acks=settings.acks if isinstance(settings.acks, int) else settings.acks.strip(),
                timeout_ms=settings.request_timeout_ms,
            )
        except EosdbError as error:
            manager.failed(error, on_produce=False)
            self._fail(batches, error)
            return
        for batch in batches:
            self._settle(batch, results[batch.tp])

    def _request_of(self, batch: ProducerBatch, identity: ProducerIdAndEpoch | None) -> RecordBatch:
        if identity is None:
            return RecordBatch(batch.records)
        return RecordBatch(
            batch.records,
            *identity,
            self._manager.base_sequence(batch.tp),
            self._manager.transactional_id is not None,
        )

    def _settle(self, batch: ProducerBatch, result: ProduceResult) -> None:
        count = len(batch.records)
        if isinstance(result.error, DuplicateSequenceNumberError):
            result = ProduceResult(duplicate=True)
        if result.error is not None:
            if self._manager.transactional_id is not None:
                self._manager.failed(result.error, on_produce=True)
            self._fail([batch], result.error)
            return
        self._manager.stored(batch.tp, count)
        self.metrics["record-send-total"] += count
        self.metrics["byte-total"] += batch.size
        self.metrics["batch-total"] += 1
        self.metrics["duplicate-batches-total"] += result.duplicate
        batch.complete(result)

    def _fail(self, batches: list[ProducerBatch], error: EosdbError) -> None:
        for batch in batches:
            self.metrics["record-error-total"] += len(batch.records)
            batch.fail(error)

    def fail_waiting(self, why: str) -> None:
        """Give up the records that were not sent."""
        self._fail(list(self._accumulator.drain()), TransactionAbortableError(why))

    def _add_partitions(self, tps: set[TopicPartition]) -> None:
        fresh = tps - self._manager.partitions
        if fresh:
            identity = self.identity()
            self._retrying(
                lambda: self._transport.add_partitions_to_txn(
                    self.transactional_id(), *identity, fresh
                )
            )
            self._manager.partitions |= fresh

    def end(self, *, committed: bool) -> None:
        """Commit or abort; nothing is sent when nothing was added to the transaction."""
        manager, identity = self._manager, self.identity()
        if manager.partitions or manager.groups:
            try:
                self._retrying(
                    lambda: manager.initialized(
                        self._transport.end_txn(self.transactional_id(), *identity, committed)
                    )
                )
            except ApiError as error:
                if not error.retriable:
                    manager.failed(error, on_produce=False)
                raise
        self.metrics["txn-commit-total" if committed else "txn-abort-total"] += 1
        manager.ended(self.identity())

    def _init_producer_id(self) -> ProducerIdAndEpoch:
        taken: list[ProducerIdAndEpoch] = []
        self._retrying(
            lambda: taken.append(
                self._transport.init_producer_id(
                    self._settings.transactional_id, self._settings.transaction_timeout_ms
                )
            )
        )
        return taken[0]

    def _retrying(self, request: Callable[[], None]) -> None:
        """Repeat the request while an earlier transaction is being ended, for max_block_ms."""
        deadline = self._clock.monotonic_ms() + self._settings.max_block_ms
        while True:
            try:
                return request()
            except ConcurrentTransactionsError:
                if self._clock.monotonic_ms() >= deadline:
                    raise
                self._clock.sleep_ms(self._settings.retry_backoff_ms)

    @contextlib.contextmanager
    def coordinator_errors(self) -> Iterator[None]:
        """What the coordinator refuses inside the block moves the producer's state.

        A stale epoch means the same from every coordinator request: fenced (TransactionManager).
        """
        try:
            yield
        except InvalidProducerEpochError as error:
            fenced = ProducerFencedError(str(error))
            self._manager.failed(fenced, on_produce=False)
            raise fenced from error
        except EosdbError as error:
            self._manager.failed(error, on_produce=False)
            raise

    def initialize(self) -> None:
        """Get the producer's identity from the broker."""
        self._manager.transition(ClientState.INITIALIZING)
        with self.coordinator_errors():
            self._manager.initialized(self._init_producer_id())
        self._manager.transition(ClientState.READY)

    def identity(self) -> ProducerIdAndEpoch:
        """Producer id and epoch, asked for with the first need."""
        if self._manager.identity is None:
            self.initialize()
        assert self._manager.identity is not None
        return self._manager.identity

    def transactional_id(self) -> str:
        assert self._manager.transactional_id is not None
        return self._manager.transactional_id
