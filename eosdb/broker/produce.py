"""Kafka's Produce request: validation of the whole request, authorization, one append for each partition.

An error of the whole request is returned for every partition; an error of one partition does not affect
the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, cast
from uuid import UUID

from eosdb import errors
from eosdb.broker.core import Core, Write, prepares
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import append as log_append
from eosdb.log import attempts, partition_rows, scheduled, topics
from eosdb.log.batch import PreparedBatch, prepare
from eosdb.model import requests
from eosdb.model.metrics import Metrics
from eosdb.model.validation import check_mapping, check_topic_partition, check_transactional_id
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    PARTITIONS_MAX,
    ProduceResult,
    ProducerIdAndEpoch,
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


@prepares(requests.Produce)
def produce(core: Core, request: requests.Produce) -> Write[dict[TopicPartition, ProduceResult]]:
    version = core.version(request.transaction_version)
    refused: dict[TopicPartition, ProduceResult] = {}
    prepared: dict[TopicPartition, PreparedBatch] = {}
    now = core.clock.time_ms()
    check_mapping("batches", request.batches)
    for key, batch in request.batches.items():
        try:
            checked = prepare(batch, now)
            tp = check_topic_partition(key, -PARTITIONS_MAX)
            if batch.is_scheduled != (tp.partition < 0):
                check_topic_partition((tp.topic, -1))
            prepared[tp] = checked
        except errors.ApiError as error:
            refused[key] = ProduceResult(error=error)
    producers = {
        (batch.producer_id, batch.producer_epoch)
        for batch in prepared.values()
        if batch.is_transactional
    }
    try:
        _check_request(producers, request.transactional_id, request.acks)
    except errors.ApiError as error:
        refused |= {tp: ProduceResult(error=error) for tp in prepared}
        prepared = {}
    shared = _Request(
        request.transactional_id, bool(producers), now, version, request.topic_ids or {}
    )

    def apply(unit: Unit) -> dict[TopicPartition, ProduceResult]:
        for result in refused.values():
            raise cast("errors.ApiError", result.error)
        return _append_at_once(core, unit, prepared, shared)

    return Write(
        apply,
        alone=lambda: refused | _append_all(core, prepared, shared),
        then=partial(count_produced, core.metrics, prepared),
    )


def append_within(
    core: Core, unit: Unit, tp: TopicPartition, batch: PreparedBatch, transactional_id: str | None
) -> ProduceResult:
    """`append` within the caller's unit."""
    request = _Request(
        transactional_id,
        batch.is_transactional,
        core.clock.time_ms(),
        core.config.transaction_version,
    )
    return _append_at_once(core, unit, {tp: batch}, request)[tp]


def _check_request(
    transactional: Collection[tuple[int, int]], transactional_id: str | None, acks: int | str
) -> None:
    """Raise the errors that concern the whole request, whose `transactional` batches are of these producers
    (Kafka: KafkaApis.handleProduceRequest)."""
    if acks not in _ACKS:
        raise errors.InvalidRequiredAcksError(f"acks: got {acks!r}, expected -1 (all), 0 or 1")
    if not transactional:
        return
    if transactional_id is None:
        raise errors.TransactionalIdAuthorizationFailedError(
            "a transactional batch came without transactional_id; name the id it belongs to"
        )
    check_transactional_id(transactional_id)
    if len(transactional) > 1:
        raise errors.InvalidProducerIdMappingError(
            f"the request carries transactional batches of {len(transactional)} producers, "
            "expected one; send them separately"
        )


def _append_all(
    core: Core, prepared: dict[TopicPartition, PreparedBatch], request: _Request
) -> dict[TopicPartition, ProduceResult]:
    """Append to every partition in one unit; if one of several has an error, to each by itself."""
    if not prepared:
        return {}
    # decisions/0004: transactional records need no fsync, because their transaction's commit has one.
    sync = not all(batch.is_transactional for batch in prepared.values())
    try:
        return core.coordinator.write(
            lambda unit: _append_at_once(core, unit, prepared, request), sync=sync
        )
    except errors.ApiError as error:
        if len(prepared) == 1:
            return {tp: ProduceResult(error=error) for tp in prepared}
    return core.coordinator.write(
        lambda unit: _append_one_by_one(core, unit, prepared, request), sync=sync
    )


def _append_at_once(
    core: Core, unit: Unit, prepared: dict[TopicPartition, PreparedBatch], request: _Request
) -> dict[TopicPartition, ProduceResult]:
    """Append to every partition, or raise the first error."""
    if request.is_transactional:  # Other producers were authorized by `init_producer_id`.
        core.may_transact(unit, request.transactional_id or "")
    partitions = {tp: _partition(core, unit, tp, request.topic_ids) for tp in prepared}
    begun = _join(core, unit, partitions, prepared, request)
    return {
        tp: _append(core, unit, partition, prepared[tp], request, begins=tp in begun)
        for tp, partition in partitions.items()
    }


def _append_one_by_one(
    core: Core, unit: Unit, prepared: dict[TopicPartition, PreparedBatch], request: _Request
) -> dict[TopicPartition, ProduceResult]:
    """Append to each partition by itself; a failing partition gets no records."""
    results: dict[TopicPartition, ProduceResult] = {}
    for tp, batch in prepared.items():
        try:
            one = {tp: batch}
            results |= unit.part(partial(_append_at_once, core, prepared=one, request=request))
        except errors.ApiError as error:
            results[tp] = ProduceResult(error=error)
    return results


def _partition(
    core: Core, unit: Unit, tp: TopicPartition, topic_ids: Mapping[str, UUID]
) -> partition_rows.Partition:
    core.authorizer.check(unit, "write", "topic", tp.topic)
    partition = _load(core, unit, tp)
    if tp.topic in topic_ids:
        topics.check_id(unit, partition.topic_id, topic_ids[tp.topic])
    return partition


def _join(
    core: Core,
    unit: Unit,
    partitions: Mapping[TopicPartition, partition_rows.Partition],
    prepared: Mapping[TopicPartition, PreparedBatch],
    request: _Request,
) -> Collection[TopicPartition]:
    """Add the partitions to the transaction of their batches; version 1 requires that they were added
    before. Returns the partitions in which a version 2 transaction begins."""
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
        attempts.note_attempt(unit, partition.partition_id, prepared[tp], core.attempts)
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
    core: Core,
    unit: Unit,
    partition: partition_rows.Partition,
    batch: PreparedBatch,
    request: _Request,
    *,
    begins: bool,
) -> ProduceResult:
    transactional_id = request.transactional_id if batch.is_transactional else None
    attempts.check_overtakes_nothing(unit, partition.partition_id, batch, core.attempts)
    result = log_append.append(
        unit,
        partition,
        batch,
        partition_rows.config(unit, partition.topic_id, core.config),
        request.now,
        transactional_id=transactional_id,
        begins=begins,
    )
    core.attempts.forget(partition.partition_id, batch.producer_id)
    return result


def _load(core: Core, unit: Unit, tp: TopicPartition) -> partition_rows.Partition:
    try:
        return partition_rows.load(unit, tp)
    except errors.UnknownTopicOrPartitionError:
        if core.config.auto_create_topics_enable:
            core.ensure_topic(unit, tp.topic)
        return scheduled.load(unit, tp, core.clock.time_ms())


RATES: Final = ("messages-in", "bytes-in")


def count_produced(
    metrics: Metrics,
    batches: Mapping[TopicPartition, PreparedBatch],
    results: Mapping[TopicPartition, ProduceResult],
) -> None:
    """Count the results of a produce request: records, duplicate batches, errors."""
    records = size = 0
    for tp, result in results.items():
        if result.error is not None:
            metrics.error(result.error)
        elif result.duplicate:
            metrics.count("duplicate-batches")
        else:
            records += batches[tp].count
            size += batches[tp].size
    if records:
        metrics.record({"messages-in": records, "bytes-in": size})
