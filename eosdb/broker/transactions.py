"""The requests by which producers run transactions, and by which operators inspect them.

Arguments are validated first. Rights are checked inside the coordinator's unit.
"""

from __future__ import annotations

from functools import partial

from eosdb.broker.core import Core, Write, answers, prepares
from eosdb.broker.group_offsets import admitted, check_committer, checked, short_enough
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.leadership import Decision
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import expected_or_none
from eosdb.coordinator.transactions.producer_ids import partition_for
from eosdb.errors import (
    InvalidRequestError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
)
from eosdb.events.kinds import TxnOffsetsCommitted
from eosdb.log import append, partition_rows, producer_rows, scheduled
from eosdb.log.producer_state import check_marker
from eosdb.model import requests, validation
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.protocol import linear_regex
from eosdb.model.requests import OffsetErrors
from eosdb.model.values import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    PARTITIONS_MAX,
    Coordinator,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from eosdb.store.writing.unit import Unit


@answers(requests.InitProducerId)
def init_producer_id(core: Core, request: requests.InitProducerId) -> ProducerIdAndEpoch:
    validation.check_producer(request.producer_id, request.producer_epoch)
    expected = expected_or_none(request.producer_id, request.producer_epoch)
    if request.transactional_id is None:
        with core.store.read() as connection:
            core.authorizer.check_idempotent_write(connection)
        return ProducerIdAndEpoch(core.coordinator.new_producer_id(), 0)
    validation.check_transactional_id(request.transactional_id)
    timeout = validation.check_int(
        "transaction_timeout_ms", request.transaction_timeout_ms, -(2**31), INT32_MAX
    )
    return core.coordinator.init_producer_id(
        request.transactional_id,
        timeout,
        expected,
        partial(core.may_transact, transactional_id=request.transactional_id),
    )


@prepares(requests.AddPartitionsToTxn)
def add_partitions_to_txn(core: Core, request: requests.AddPartitionsToTxn) -> Write[None]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    validation.check_identity(request.transactional_id, *producer)
    tps = frozenset(validation.check_topic_partitions(request.partitions, -PARTITIONS_MAX))

    def add(unit: Unit) -> None:
        core.may_transact(unit, request.transactional_id)
        for topic in sorted({tp.topic for tp in tps}):
            if topic in INTERNAL_TOPICS:
                raise TopicAuthorizationFailedError(f"{topic} is Kafka's internal topic")
            core.authorizer.check(unit, "write", "topic", topic)
        now = core.clock.time_ms()
        for tp in sorted(tps):
            scheduled.load(unit, tp, now)
        transaction_rows.join(unit, request.transactional_id, producer, None, now, tps=tps)

    return core.not_synced(add)


@prepares(requests.AddOffsetsToTxn)
def add_offsets_to_txn(core: Core, request: requests.AddOffsetsToTxn) -> Write[None]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    validation.check_identity(request.transactional_id, *producer)
    validation.check_group_id(request.group_id)

    def add(unit: Unit) -> None:
        core.may_transact(unit, request.transactional_id)
        core.authorizer.check(unit, "read", "group", request.group_id)
        groups = frozenset({request.group_id})
        now = core.clock.time_ms()
        transaction_rows.join(unit, request.transactional_id, producer, None, now, groups=groups)

    return core.not_synced(add)


@prepares(requests.TxnOffsetCommit)
def txn_offset_commit(core: Core, request: requests.TxnOffsetCommit) -> Write[OffsetErrors]:
    transactional_id, group = request.transactional_id, request.group
    identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    validation.check_identity(transactional_id, *identity)
    validation.check_given_group_id(group.group_id)
    commits = checked(request)
    version = core.version(request.transaction_version)

    def commit(unit: Unit) -> OffsetErrors:
        core.may_transact(unit, transactional_id)
        errors = admitted(core, unit, request, commits)
        left = group_offsets.passed(commits, errors)
        if commits and not left:
            return errors
        now = core.clock.time_ms()
        groups = frozenset((group.group_id,))
        transaction_rows.join(unit, transactional_id, identity, version, now, groups=groups)
        check_committer(unit, group, left, now, is_transactional=True)
        settled = group_offsets.settled(unit, group.group_id, left)
        kept, errors = short_enough(core, request, settled, errors)
        unit.record(
            TxnOffsetsCommitted(
                timestamp=now,
                transactional_id=transactional_id,
                group_id=group.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                offsets=kept,
            )
        )
        return errors

    return core.not_synced(commit)


@prepares(requests.EndTxn)
def end_txn(core: Core, request: requests.EndTxn) -> Write[ProducerIdAndEpoch]:
    transactional_id = request.transactional_id
    validation.check_identity(transactional_id, request.producer_id, request.producer_epoch)
    version = core.version(request.transaction_version)
    coordinator = core.coordinator
    coordinator.leadership.ensure_elected()

    def decide(unit: Unit, fresh: int | None = None) -> Decision:
        core.may_transact(unit, transactional_id)
        return coordinator.end(unit, request, version, fresh)

    return Write(
        lambda unit: coordinator.decided_at_once(unit, decide(unit)).producer,
        alone=lambda: coordinator.decided(transactional_id, decide).producer,
    )


@prepares(requests.WriteTxnMarkers)
def write_txn_markers(core: Core, request: requests.WriteTxnMarkers) -> Write[None]:
    pid = validation.check_int("producer_id", request.producer_id, 0)
    epoch = validation.check_int("producer_epoch", request.producer_epoch, 0, validation.INT16_MAX)
    ruler = validation.check_int("coordinator_epoch", request.coordinator_epoch, -1, INT32_MAX)
    tps = validation.check_topic_partitions(request.partitions)
    version = core.version(request.transaction_version)

    def write(unit: Unit) -> None:
        core.authorizer.check_write_markers(unit)
        partitions = [partition_rows.load(unit, tp) for tp in tps]
        for partition in partitions:
            entry = producer_rows.load(unit, partition.partition_id, pid)
            check_marker(entry, epoch, ruler, version)
        for partition in partitions:
            append.append_marker(
                unit,
                partition,
                ProducerIdAndEpoch(pid, epoch),
                ruler,
                committed=bool(request.committed),
                transactional_id=None,
                now_ms=core.clock.time_ms(),
                transaction_version=version,
            )

    return Write(write)


@answers(requests.FindCoordinator)
def find_coordinator(core: Core, request: requests.FindCoordinator) -> Coordinator:
    if request.key_type not in ("transaction", "group"):
        raise InvalidRequestError(
            f"key_type: got {request.key_type!r}, expected transaction or group"
        )
    validation.check_text("key", request.key)
    with core.store.read() as connection:
        resource = "transactional_id" if request.key_type == "transaction" else "group"
        core.authorizer.check(connection, "describe", resource, request.key)
        return Coordinator(partition_for(request.key), transaction_rows.epoch(connection))


@answers(requests.DescribeProducers)
def describe_producers(core: Core, request: requests.DescribeProducers) -> list[ProducerState]:
    if isinstance(request.topic_partition, tuple) and len(request.topic_partition) == 2:
        # Names are checked first, as in KafkaApis.handleDescribeProducers.
        validation.check_topic_name(request.topic_partition[0])
    tp = validation.check_topic_partition(request.topic_partition)
    with core.reading("read", "topic", tp.topic) as connection:
        return producer_rows.describe(connection, partition_rows.read(connection, tp).partition_id)


@answers(requests.DescribeTransactions)
def describe_transactions(
    core: Core, request: requests.DescribeTransactions
) -> dict[str, TransactionDescription]:
    validation.check_collection("transactional_ids", request.transactional_ids)
    described: dict[str, TransactionDescription] = {}
    with core.store.read() as connection:
        foresight = core.coordinator.foresight(connection)
        for name in request.transactional_ids:
            validation.check_transactional_id(name)
            core.authorizer.check(connection, "describe", "transactional_id", name)
            metadata = transaction_rows.TRANSACTIONAL_IDS.find(connection, name)
            if metadata is None:
                raise TransactionalIdNotFoundError(f"there is no transactional id {name!r}")
            described[name] = TransactionDescription(
                name,
                partition_for(name),
                metadata.state.label,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.timeout_ms,
                metadata.start_time_ms,
                frozenset(
                    tp
                    for tp in metadata.partitions
                    if tp.topic != GROUP_METADATA_TOPIC
                    and tp.partition >= 0
                    and core.authorizer.allows(connection, "describe", "topic", tp.topic)
                ),
                foresight.of_transaction(metadata),
            )
    return described


@answers(requests.ListTransactions)
def list_transactions(core: Core, request: requests.ListTransactions) -> list[TransactionListing]:
    states = validation.check_texts("states", request.states)
    given = validation.check_collection("producer_ids", request.producer_ids)
    producer_ids = [validation.check_int("producer_ids", one, -INT64_MAX) for one in given]
    validation.check_int("duration_ms", request.duration_ms, -1)
    validation.check_name("transactional_id_pattern", request.transactional_id_pattern)
    conditions, values = ["1"], list[object]()
    for column, wanted in (("state", states), ("producer_id", producer_ids)):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values.extend(wanted)
    if request.duration_ms >= 0:
        conditions.append("start_time < ?")
        values.append(core.clock.time_ms() - request.duration_ms)
    with core.store.read() as connection:
        foresight = core.coordinator.foresight(connection)
        found = [
            TransactionListing(
                metadata.transactional_id,
                metadata.producer_id,
                metadata.state.label,
                foresight.of_transaction(metadata),
            )
            for metadata in transaction_rows.read_where(
                connection, " AND ".join(conditions), tuple(values)
            )
            if core.authorizer.allows(
                connection, "describe", "transactional_id", metadata.transactional_id
            )
        ]
    if not request.transactional_id_pattern:
        return found
    ids = tuple(transaction.transactional_id for transaction in found)
    matching = linear_regex.matching(request.transactional_id_pattern, ids)
    return [transaction for transaction in found if transaction.transactional_id in matching]
