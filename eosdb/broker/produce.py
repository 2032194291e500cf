"""Kafka's Produce request: validation of the whole request, authorization, one append for each partition.

An error of the whole request is returned for every partition; an error of one partition does not affect
the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, cast
from uuid import UUID

from eosdb.broker.asking import Answering, Write, answers
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.errors import (
    ApiError,
    InvalidProducerIdMappingError,
    InvalidRequiredAcksError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from eosdb.log import append as log_append
from eosdb.log import partition_rows, topics
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.model import requests
from eosdb.model.metrics import Metrics
from eosdb.model.validation import check_mapping, check_topic_partition, check_transactional_id
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit

_ACKS: Final = (-1, 0, 1, "all", "-1", "0", "1")


class _Request(NamedTuple):
    """The common fields of a request's batches."""

    transactional_id: str | None
    is_transactional: bool
    now: int
    version: int
    topic_ids: Mapping[str, UUID] = MappingProxyType({})


class ProduceRequests(Answering):
    """The part of `Broker` that appends records."""

    @answers(requests.Produce)
    def produce(self, request: requests.Produce) -> Write[dict[TopicPartition, ProduceResult]]:
        version = self._version(request.transaction_version)
        refused: dict[TopicPartition, ProduceResult] = {}
        prepared: dict[TopicPartition, PreparedBatch] = {}
        now = self._clock.time_ms()
        check_mapping("batches", request.batches)
        for key, batch in request.batches.items():
            try:
                prepared[check_topic_partition(key)] = prepare(batch, now)
            except ApiError as error:
                refused[key] = ProduceResult(error=error)
        is_transactional = any(batch.is_transactional for batch in prepared.values())
        try:
            self._check_request(prepared.values(), request.transactional_id, request.acks)
        except ApiError as error:
            refused |= {tp: ProduceResult(error=error) for tp in prepared}
            prepared = {}
        shared = _Request(
            request.transactional_id, is_transactional, now, version, request.topic_ids or {}
        )

        def apply(unit: Unit) -> dict[TopicPartition, ProduceResult]:
            for result in refused.values():
                raise cast("ApiError", result.error)
            return self._append_at_once(unit, prepared, shared)

        return Write(
            apply,
            alone=lambda: refused | self._append_all(prepared, shared),
            then=partial(count_produced, self._core.metrics, prepared),
        )

    def append(
        self,
        topic_partition: TopicPartition,
        batch: RecordBatch,
        *,
        transactional_id: str | None = None,
        transaction_version: int | None = None,
    ) -> ProduceResult:
        """`produce` for one partition; raises the error that `produce` would return in the result."""
        (result,) = self.produce(
            {topic_partition: batch},
            transactional_id=transactional_id,
            transaction_version=transaction_version,
        ).values()
        if result.error is not None:
            raise result.error
        return result

    def _append_within(
        self, unit: Unit, tp: TopicPartition, batch: PreparedBatch, transactional_id: str | None
    ) -> ProduceResult:
        """`append` within the caller's unit."""
        request = _Request(
            transactional_id,
            batch.is_transactional,
            self._clock.time_ms(),
            self._config.transaction_version,
        )
        return self._append_at_once(unit, {tp: batch}, request)[tp]

    def _check_request(
        self, prepared: Iterable[PreparedBatch], transactional_id: str | None, acks: int | str
    ) -> None:
        """Raise the errors that concern the whole request (Kafka: KafkaApis.handleProduceRequest)."""
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
        check_transactional_id(transactional_id)
        if len(transactional) > 1:
            raise InvalidProducerIdMappingError(
                f"the request carries transactional batches of {len(transactional)} producers, "
                "expected one; send them separately"
            )

    def _append_all(
        self, prepared: dict[TopicPartition, PreparedBatch], request: _Request
    ) -> dict[TopicPartition, ProduceResult]:
        """Append to every partition in one unit; if one of several has an error, to each by itself."""
        if not prepared:
            return {}
        # decisions/0004: a transactional append needs no sync; the Prepare that decides it is synced.
        sync = not all(batch.is_transactional for batch in prepared.values())
        try:
            return self._coordinator.write(
                lambda unit: self._append_at_once(unit, prepared, request), sync=sync
            )
        except ApiError as error:
            if len(prepared) == 1:
                return {tp: ProduceResult(error=error) for tp in prepared}
        return self._coordinator.write(
            lambda unit: self._append_one_by_one(unit, prepared, request), sync=sync
        )

    def _append_at_once(
        self, unit: Unit, prepared: dict[TopicPartition, PreparedBatch], request: _Request
    ) -> dict[TopicPartition, ProduceResult]:
        """Append to every partition, or raise the first error."""
        if request.is_transactional:  # `init_producer_id` authorizes idempotent producers.
            self._may_transact(unit, request.transactional_id or "")
        partitions = {tp: self._partition(unit, tp, request.topic_ids) for tp in prepared}
        begun = self._join(unit, partitions, prepared, request)
        return {
            tp: self._append(unit, partition, prepared[tp], request, begins=tp in begun)
            for tp, partition in partitions.items()
        }

    def _append_one_by_one(
        self, unit: Unit, prepared: dict[TopicPartition, PreparedBatch], request: _Request
    ) -> dict[TopicPartition, ProduceResult]:
        """Append to each partition by itself; a failing partition gets no records."""
        results: dict[TopicPartition, ProduceResult] = {}
        for tp, batch in prepared.items():
            try:
                one = {tp: batch}
                results |= unit.part(partial(self._append_at_once, prepared=one, request=request))
            except ApiError as error:
                results[tp] = ProduceResult(error=error)
        return results

    def _partition(
        self, unit: Unit, tp: TopicPartition, topic_ids: Mapping[str, UUID]
    ) -> partition_rows.Partition:
        self._authorizer.check(unit, "write", "topic", tp.topic)
        partition = self._load(unit, tp)
        if tp.topic in topic_ids:
            topics.check_id(unit, partition.topic_id, topic_ids[tp.topic])
        return partition

    def _join(
        self,
        unit: Unit,
        partitions: Mapping[TopicPartition, partition_rows.Partition],
        prepared: Mapping[TopicPartition, PreparedBatch],
        request: _Request,
    ) -> Collection[TopicPartition]:
        """Add the partitions to the transaction of their batches; version 1 requires that they were added
        before. Returns those in which the transaction's own epoch begins."""
        joining = {
            tp: partition
            for tp, partition in partitions.items()
            if (batch := prepared[tp]).is_transactional
            and not log_append.has_open_transaction(
                unit, partition.partition_id, batch.producer_id, batch.producer_epoch
            )
        }
        if not joining:
            return ()
        assert request.transactional_id is not None
        first = prepared[next(iter(joining))]
        producer = ProducerIdAndEpoch(first.producer_id, first.producer_epoch)
        for tp, partition in joining.items():
            log_append.note_attempt(unit, partition.partition_id, prepared[tp], self._core.attempts)
        transaction_rows.join(
            unit, request.transactional_id, producer, request.version, request.now,
            tps=frozenset(joining),
        )  # fmt: skip
        if request.version < EPOCH_PER_TRANSACTION:
            return ()
        for tp, partition in joining.items():
            log_append.check_begins_at_zero(unit, partition.partition_id, prepared[tp])
        return joining

    def _append(
        self,
        unit: Unit,
        partition: partition_rows.Partition,
        batch: PreparedBatch,
        request: _Request,
        *,
        begins: bool,
    ) -> ProduceResult:
        transactional_id = request.transactional_id if batch.is_transactional else None
        holder = None if transactional_id is None else transaction_rows.load(unit, transactional_id)
        attempts = self._core.attempts
        log_append.check_overtakes_nothing(unit, partition.partition_id, batch, attempts)
        result = log_append.append(
            unit,
            partition,
            batch,
            partition_rows.config(unit, partition.topic_id, self._config),
            request.now,
            transactional_id=transactional_id,
            producer=None if holder is None else holder.producer,
            begins=begins,
        )
        attempts.forget(partition.partition_id, batch.producer_id)
        return result

    def _load(self, unit: Unit, tp: TopicPartition) -> partition_rows.Partition:
        try:
            return partition_rows.load(unit, tp)
        except UnknownTopicOrPartitionError:
            if not self._config.auto_create_topics_enable:
                raise
            self._core.ensure_topic(unit, tp.topic)
            return partition_rows.load(unit, tp)


RATES: Final = ("messages-in", "bytes-in")


def count_produced(
    metrics: Metrics,
    batches: Mapping[TopicPartition, PreparedBatch],
    results: Mapping[TopicPartition, ProduceResult],
) -> None:
    """Count the results of a produce request: records, duplicate batches, errors."""
    for tp, result in results.items():
        if result.error is not None:
            metrics.error(result.error)
        elif result.duplicate:
            metrics.count("duplicate-batches")
        else:
            batch = batches[tp]
            metrics.record({"messages-in": batch.count, "bytes-in": batch.size})
