"""The requests by which producers run transactions, and those that inspect transactions.

A request's arguments are validated first; it is authorised inside the coordinator's unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from eosdb.broker.asking import Answering, Write, answers
from eosdb.broker.group_offsets import admitted, check_committer, checked, short_enough
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.leadership import Decision
from eosdb.coordinator.placement import partition_for
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import expected_or_none
from eosdb.errors import (
    IllegalGenerationError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    TransactionalIdNotFoundError,
)
from eosdb.events.kinds import TxnOffsetsCommitted
from eosdb.log import append, partition_rows, producer_rows
from eosdb.log.producer_state import check_marker
from eosdb.model import requests
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.protocol import linear_regex
from eosdb.model.requests import OffsetErrors
from eosdb.model.validation import (
    INT16_MAX,
    check_collection,
    check_described_partition,
    check_given_group_id,
    check_group_id,
    check_identity,
    check_int,
    check_name,
    check_producer,
    check_text,
    check_texts,
    check_topic_partitions,
    check_transactional_id,
)
from eosdb.model.values import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    ConsumerGroupMetadata,
    Coordinator,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    ProducerState,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from eosdb.store.writing.unit import Unit


class TransactionRequests(Answering):
    """The part of `Broker` for producer ids and transactions."""

    @answers(requests.InitProducerId)
    def init_producer_id(self, request: requests.InitProducerId) -> ProducerIdAndEpoch:
        check_producer(request.producer_id, request.producer_epoch)
        expected = expected_or_none(request.producer_id, request.producer_epoch)
        if request.transactional_id is None:
            with self._store.read() as connection:
                self._authorizer.check_idempotent_write(connection)
            return ProducerIdAndEpoch(self._coordinator.new_producer_id(), 0)
        check_transactional_id(request.transactional_id)
        timeout = check_int(
            "transaction_timeout_ms", request.transaction_timeout_ms, -(2**31), INT32_MAX
        )
        return self._coordinator.init_producer_id(
            request.transactional_id,
            timeout,
            expected,
            partial(self._may_transact, transactional_id=request.transactional_id),
        )

    @answers(requests.AddPartitionsToTxn)
    def add_partitions_to_txn(self, request: requests.AddPartitionsToTxn) -> Write[None]:
        check_identity(request.transactional_id, request.producer_id, request.producer_epoch)
        tps = frozenset(check_topic_partitions(request.partitions))

        def add(unit: Unit) -> None:
            self._may_transact(unit, request.transactional_id)
            for topic in sorted({tp.topic for tp in tps}):
                if topic in INTERNAL_TOPICS:
                    raise TopicAuthorizationFailedError(f"{topic} is Kafka's internal topic")
                self._authorizer.check(unit, "write", "topic", topic)
            self._add(unit, request, tps=tps)

        return self._not_synced(add)

    @answers(requests.AddOffsetsToTxn)
    def add_offsets_to_txn(self, request: requests.AddOffsetsToTxn) -> Write[None]:
        check_identity(request.transactional_id, request.producer_id, request.producer_epoch)
        check_group_id(request.group_id)

        def add(unit: Unit) -> None:
            self._may_transact(unit, request.transactional_id)
            self._authorizer.check(unit, "read", "group", request.group_id)
            self._add(unit, request, groups=frozenset({request.group_id}))

        return self._not_synced(add)

    def _add(
        self,
        unit: Unit,
        request: requests.AddPartitionsToTxn | requests.AddOffsetsToTxn,
        **added: Any,
    ) -> None:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        now = self._clock.time_ms()
        transaction_rows.add(unit, request.transactional_id, producer, now, **added)

    def txn_offset_commit(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        """Make offsets part of the transaction: they become the group's when it commits. Takes all of them
        or none.

        Under transaction version 2 this also adds the group to the transaction (see `produce`). Raises
        InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError,
        InvalidGroupIdError, IllegalGenerationError, UnknownMemberIdError, UnknownTopicOrPartitionError,
        OffsetMetadataTooLargeError and the authorization errors.
        """
        self.ask(
            requests.TxnOffsetCommit(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group=ConsumerGroupMetadata(group_id, generation_id, member_id, group_instance_id),
                offsets=offsets,
            )
        )

    @answers(requests.TxnOffsetCommit)
    def _txn_offset_commit(self, request: requests.TxnOffsetCommit) -> Write[OffsetErrors]:
        transactional_id, group = request.transactional_id, request.group
        identity = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        check_identity(transactional_id, *identity)
        check_given_group_id(group.group_id)
        commits = checked(request)
        version = self._version(request.transaction_version)
        unknown = IllegalGenerationError(
            f"there is no group {group.group_id!r}, got a commit of generation {group.generation_id}"
        )

        def commit(unit: Unit) -> OffsetErrors:
            self._may_transact(unit, transactional_id)
            errors = admitted(self._core, unit, request, commits)
            left = group_offsets.passed(commits, errors)
            if commits and not left:
                return errors
            now = self._clock.time_ms()
            groups = frozenset((group.group_id,))
            transaction_rows.join(unit, transactional_id, identity, version, now, groups=groups)
            check_committer(unit, group, now, unknown, is_transactional=True)
            kept, errors = short_enough(self._core, request, left, errors)
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

        return self._not_synced(commit)

    @answers(requests.EndTxn)
    def end_txn(self, request: requests.EndTxn) -> Write[ProducerIdAndEpoch]:
        transactional_id = request.transactional_id
        check_identity(transactional_id, request.producer_id, request.producer_epoch)
        version = self._version(request.transaction_version)
        coordinator = self._coordinator
        coordinator.leadership.ensure_elected()

        def decide(unit: Unit, fresh: int | None = None) -> Decision | None:
            self._may_transact(unit, transactional_id)
            return coordinator.end(unit, request, version, fresh)

        return Write(
            lambda unit: coordinator.decided_at_once(unit, decide(unit)).producer,
            alone=lambda: coordinator.decided(transactional_id, decide).producer,
        )

    @answers(requests.WriteTxnMarkers)
    def write_txn_markers(self, request: requests.WriteTxnMarkers) -> Write[None]:
        pid = check_int("producer_id", request.producer_id, 0)
        epoch = check_int("producer_epoch", request.producer_epoch, 0, INT16_MAX)
        ruler = check_int("coordinator_epoch", request.coordinator_epoch, -1, INT32_MAX)
        tps = check_topic_partitions(request.partitions)
        version = self._version(request.transaction_version)

        def write(unit: Unit) -> None:
            self._authorizer.check_write_markers(unit)
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
                    now_ms=self._clock.time_ms(),
                    transaction_version=version,
                )

        return Write(write)

    @answers(requests.FindCoordinator)
    def find_coordinator(self, request: requests.FindCoordinator) -> Coordinator:
        if request.key_type not in ("transaction", "group"):
            raise InvalidRequestError(
                f"key_type: got {request.key_type!r}, expected transaction or group"
            )
        check_text("key", request.key)
        with self._store.read() as connection:
            resource = "transactional_id" if request.key_type == "transaction" else "group"
            self._authorizer.check(connection, "describe", resource, request.key)
            return Coordinator(partition_for(request.key), transaction_rows.read_epoch(connection))

    @answers(requests.DescribeProducers)
    def describe_producers(self, request: requests.DescribeProducers) -> list[ProducerState]:
        tp = check_described_partition(request.topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            return producer_rows.describe(
                connection, partition_rows.read(connection, tp).partition_id
            )

    @answers(requests.DescribeTransactions)
    def describe_transactions(
        self, request: requests.DescribeTransactions
    ) -> dict[str, TransactionDescription]:
        check_collection("transactional_ids", request.transactional_ids)
        with self._store.read() as connection:
            return _described(
                connection,
                request.transactional_ids,
                self._authorizer,
                self._coordinator.foresight(connection),
            )

    @answers(requests.ListTransactions)
    def list_transactions(self, request: requests.ListTransactions) -> list[TransactionListing]:
        check_texts("states", request.states)
        for producer_id in check_collection("producer_ids", request.producer_ids):
            check_int("producer_ids", producer_id, -INT64_MAX)
        check_int("duration_ms", request.duration_ms, -1)
        check_name("transactional_id_pattern", request.transactional_id_pattern)
        started_before = (
            None if request.duration_ms < 0 else self._clock.time_ms() - request.duration_ms
        )
        filters = (request.states, request.producer_ids, started_before)
        with self._store.read() as connection:
            foresight = self._coordinator.foresight(connection)
            found = _listed(connection, *filters, self._authorizer, foresight)
        if not request.transactional_id_pattern:
            return found
        ids = tuple(transaction.transactional_id for transaction in found)
        matching = linear_regex.matching(request.transactional_id_pattern, ids)
        return [transaction for transaction in found if transaction.transactional_id in matching]


def _described(
    connection: sqlite3.Connection,
    transactional_ids: Iterable[str],
    authorizer: Authorizer,
    foresight: Foresight,
) -> dict[str, TransactionDescription]:
    """The transactions of these ids, without partitions of topics that the principal may not describe.
    Raises TransactionalIdNotFoundError for the first unknown id."""
    described: dict[str, TransactionDescription] = {}
    for transactional_id in transactional_ids:
        check_transactional_id(transactional_id)
        authorizer.check(connection, "describe", "transactional_id", transactional_id)
        metadata = transaction_rows.read(connection, transactional_id)
        if metadata is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
        described[transactional_id] = TransactionDescription(
            transactional_id,
            partition_for(transactional_id),
            metadata.state.label,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.start_time_ms,
            frozenset(
                tp
                for tp in metadata.partitions
                if tp.topic != GROUP_METADATA_TOPIC
                and authorizer.allows(connection, "describe", "topic", tp.topic)
            ),
            foresight.of_transaction(metadata),
        )
    return described


def _listed(
    connection: sqlite3.Connection,
    states: Sequence[str],
    producer_ids: Sequence[int],
    started_before: int | None,
    authorizer: Authorizer,
    foresight: Foresight,
) -> list[TransactionListing]:
    """Transactions that match every filter, by id; empty filters and None match all."""
    conditions, values = ["1"], list[object]()
    for column, wanted in (("state", states), ("producer_id", producer_ids)):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values.extend(wanted)
    if started_before is not None:
        conditions.append("start_time < ?")
        values.append(started_before)
    return [
        TransactionListing(
            metadata.transactional_id,
            metadata.producer_id,
            metadata.state.label,
            foresight.of_transaction(metadata),
        )
        for metadata in transaction_rows.read_where(
            connection, " AND ".join(conditions), tuple(values)
        )
        if authorizer.allows(connection, "describe", "transactional_id", metadata.transactional_id)
    ]
