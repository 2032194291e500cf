"""Kafka's Produce request: checks of the request as a whole, authorization, then one append each.

Whole-request errors are every partition's error; a partition's own error leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator import transactions
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.coordinator.request_handler import RequestHandler
from eosdb.errors import (
    ApiError,
    InvalidProducerIdMappingError,
    InvalidRequiredAcksError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from eosdb.log import append as log_append
from eosdb.log import partitions
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.metrics import Metrics
from eosdb.model import (
    EPOCH_PER_TRANSACTION,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    TopicPartition,
)
from eosdb.request_metrics import count_produced
from eosdb.store.store import Store
from eosdb.store.unit import Unit
from eosdb.validation import check_mapping, check_text, check_topic_partition

_ACKS: Final = (-1, 0, 1, "all", "-1", "0", "1")


class ProduceHandler(RequestHandler):
    """What the broker does with a produce request."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        authorizer: Authorizer,
        metrics: Metrics,
    ) -> None:
        super().__init__(store, coordinator, clock, config, authorizer)
        self._metrics = metrics

    def produce(
        self,
        batches: Mapping[TopicPartition, RecordBatch],
        transactional_id: str | None,
        acks: int | str,
        version: int,
    ) -> dict[TopicPartition, ProduceResult]:
        """One result for each partition; never raises an ApiError."""
        results: dict[TopicPartition, ProduceResult] = {}
        prepared: dict[TopicPartition, PreparedBatch] = {}
        now = self._clock.time_ms()
        check_mapping("batches", batches)
        for key, batch in batches.items():
            try:
                prepared[check_topic_partition(key)] = prepare(batch, now)
            except ApiError as error:
                results[key] = ProduceResult(error=error)
        try:
            self._check_request(prepared.values(), transactional_id, acks)
            results |= self._append_all(prepared, transactional_id, now, version)
        except ApiError as error:
            results |= {tp: ProduceResult(error=error) for tp in prepared}
        count_produced(self._metrics, prepared, results)
        return results

    def _check_request(
        self, prepared: Iterable[PreparedBatch], transactional_id: str | None, acks: int | str
    ) -> None:
        """What is wrong with the request as a whole (Kafka: KafkaApis.handleProduceRequest)."""
        if acks not in _ACKS:
            raise InvalidRequiredAcksError(f"acks: got {acks!r}, expected -1 (all), 0 or 1")
        transactional = {
            (batch.producer_id, batch.producer_epoch)
            for batch in prepared
            if batch.is_transactional
        }
        if not transactional:
            return
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailedError(
                "a transactional batch came without transactional_id; name the id it belongs to"
            )
        check_text("transactional_id", transactional_id)
        if len(transactional) > 1:
            raise InvalidProducerIdMappingError(
                f"the request carries transactional batches of {len(transactional)} producers, "
                "expected one; send them apart"
            )

    def _append_all(
        self,
        prepared: dict[TopicPartition, PreparedBatch],
        transactional_id: str | None,
        now: int,
        version: int,
    ) -> dict[TopicPartition, ProduceResult]:
        if not prepared:
            return {}

        def run(unit: Unit) -> dict[TopicPartition, ProduceResult]:
            self._authorize_produce(unit, prepared, transactional_id)
            if len(prepared) == 1:
                ((tp, batch),) = prepared.items()
                return {tp: self._append_one(unit, tp, batch, transactional_id, now, version)}
            results = {}
            for tp, batch in prepared.items():
                try:
                    with unit.savepoint():
                        results[tp] = self._append_one(
                            unit, tp, batch, transactional_id, now, version
                        )
                except ApiError as error:
                    results[tp] = ProduceResult(error=error)
            return results

        return self._coordinator.write(
            run, sync=not all(batch.is_transactional for batch in prepared.values())
        )

    def _append_one(
        self,
        unit: Unit,
        tp: TopicPartition,
        batch: PreparedBatch,
        transactional_id: str | None,
        now: int,
        version: int,
    ) -> ProduceResult:
        self._authorizer.check(unit, "write", "topic", tp.topic)
        partition = self._load(unit, tp)
        if batch.is_transactional:
            assert transactional_id is not None
            if not log_append.has_open_transaction(
                unit, partition.partition_id, batch.producer_id, batch.producer_epoch
            ):
                producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
                transactions.join(unit, transactional_id, producer, version, now, partition=tp)
                if version >= EPOCH_PER_TRANSACTION:
                    log_append.check_begins_at_zero(unit, partition.partition_id, batch)
        return log_append.append(
            unit,
            partition,
            batch,
            partitions.config(unit, partition.topic_id, self._config),
            now,
            transactional_id=transactional_id if batch.is_transactional else None,
        )

    def _authorize_produce(
        self,
        unit: Unit,
        prepared: Mapping[TopicPartition, PreparedBatch],
        transactional_id: str | None,
    ) -> None:
        if any(batch.is_transactional for batch in prepared.values()):
            self._authorizer.check(unit, "write", "transactional_id", transactional_id or "")
        elif any(batch.producer_id >= 0 for batch in prepared.values()):
            self._authorizer.check_idempotent_write(unit)

    def _load(self, unit: Unit, tp: TopicPartition) -> partitions.Partition:
        try:
            return partitions.load(unit, tp)
        except UnknownTopicOrPartitionError:
            if not self._config.auto_create_topics_enable:
                raise
            self.ensure_topic(unit, tp.topic)
            return partitions.load(unit, tp)
