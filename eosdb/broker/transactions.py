"""The requests by which producers run transactions, and those that inspect transactions.

The arguments of a request are validated first; it is authorised inside the unit that the coordinator
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

from eosdb.broker import listing
from eosdb.broker.group_offsets import Committer, Refused, admitted, check_committer, still_here
from eosdb.broker.handler import RequestHandler
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.placement import partition_for
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import expected_or_none
from eosdb.errors import (
    IllegalGenerationError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
)
from eosdb.events.kinds import OffsetCommit
from eosdb.log import partition_rows, producer_rows
from eosdb.model.config import INT32_MAX, INT64_MAX
from eosdb.model.protocol import linear_regex
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
    INTERNAL_TOPICS,
    Coordinator,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    ProducerState,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from eosdb.store.writing.unit import Unit


class TransactionRequests(RequestHandler):
    """The part of `Broker` for producer ids and transactions."""

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> ProducerIdAndEpoch:
        """A new producer id, or for a transactional id its producer id with the next epoch (KIP-98,
        KIP-360).

        Raises ConcurrentTransactionsError if it had to abort an open transaction first: call it again.
        Raises ProducerFencedError, InvalidTransactionTimeoutError, InvalidRequestError and the
        authorization errors.
        """
        check_producer(producer_id, producer_epoch)
        expected = expected_or_none(producer_id, producer_epoch)
        if transactional_id is None:
            with self._store.read() as connection:
                self._authorizer.check_idempotent_write(connection)
            return ProducerIdAndEpoch(self._coordinator.new_producer_id(), 0)
        check_transactional_id(transactional_id)
        timeout = check_int("transaction_timeout_ms", transaction_timeout_ms, -(2**31), INT32_MAX)
        return self._coordinator.init_producer_id(
            transactional_id, timeout, expected, self._may_transact(transactional_id)
        )

    def add_partitions_to_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Add partitions to the transaction, which begins if none is open. Adds all of them or none.

        Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError,
        UnknownTopicOrPartitionError and the authorization errors.
        """
        check_identity(transactional_id, producer_id, producer_epoch)
        tps = frozenset(check_topic_partitions(partitions))

        def authorize(unit: Unit) -> None:
            self._may_transact(transactional_id)(unit)
            for topic in sorted({tp.topic for tp in tps}):
                if topic in INTERNAL_TOPICS:
                    raise TopicAuthorizationFailedError(f"{topic} is Kafka's internal topic")
                self._authorizer.check(unit, "write", "topic", topic)

        self._coordinator.add_to_transaction(
            transactional_id, producer_id, producer_epoch, tps, frozenset(), authorize
        )

    def add_offsets_to_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        """Add the group's offsets to the transaction. Raises the same errors as add_partitions_to_txn."""
        check_identity(transactional_id, producer_id, producer_epoch)
        check_group_id(group_id)

        def authorize(unit: Unit) -> None:
            self._may_transact(transactional_id)(unit)
            self._authorizer.check(unit, "read", "group", group_id)

        self._coordinator.add_to_transaction(
            transactional_id,
            producer_id,
            producer_epoch,
            frozenset(),
            frozenset({group_id}),
            authorize,
        )

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
        transaction_version: int | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        refused: Refused | None = None,
    ) -> None:
        """Make offsets part of the transaction: they become the group's when it commits. Takes all of them
        or none; with a dict `refused`, each partition by itself (see offset_commit).

        Under transaction version 2 this also adds the group to the transaction (see `produce`). Raises
        InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError,
        InvalidGroupIdError, IllegalGenerationError, UnknownMemberIdError, UnknownTopicOrPartitionError,
        OffsetMetadataTooLargeError and the authorization errors.
        """
        check_identity(transactional_id, producer_id, producer_epoch)
        check_given_group_id(group_id)
        commits = group_offsets.check_offsets(offsets, refused)
        committer = Committer(
            generation_id, member_id, group_instance_id, topic_ids or {}
        ).checked()

        def admit(unit: Unit) -> tuple[OffsetCommit, ...]:
            self._may_transact(transactional_id)(unit)
            self._authorizer.check(unit, "read", "group", group_id)
            readable = admitted(self._core, unit, commits, refused)
            return still_here(self._core, unit, group_id, readable, committer, refused)

        self._coordinator.txn_offset_commit(
            transactional_id,
            group_id,
            producer_id,
            producer_epoch,
            admit,
            self._may_commit(group_id, committer),
            self._version(transaction_version),
            refused,
        )

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        *,
        transaction_version: int | None = None,
    ) -> ProducerIdAndEpoch:
        """Commit or abort the transaction. The outcome is final when this returns; if it raises, it may
        have been decided nevertheless.

        Returns the producer id and epoch to use next: under transaction version 2 the next epoch. Raises
        InvalidTxnStateError, ProducerFencedError, InvalidProducerIdMappingError,
        ConcurrentTransactionsError, TransactionCoordinatorFencedError and
        TransactionalIdAuthorizationFailedError.
        """
        check_identity(transactional_id, producer_id, producer_epoch)
        return self._coordinator.end_txn(
            transactional_id,
            producer_id,
            producer_epoch,
            bool(committed),
            self._version(transaction_version),
            self._may_transact(transactional_id),
        )

    def write_txn_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        partitions: Iterable[TopicPartition],
        coordinator_epoch: int,
        *,
        transaction_version: int | None = None,
    ) -> None:
        """Write the markers of one transaction: all partitions are checked before the first marker is
        written.

        For operators, to end a hanging transaction (KIP-664). Under transaction version 2, `producer_epoch`
        is one higher than that of the transaction's batches. Raises InvalidProducerEpochError,
        TransactionCoordinatorFencedError, UnknownTopicOrPartitionError and
        ClusterAuthorizationFailedError.
        """
        check_int("producer_id", producer_id, 0)
        check_int("producer_epoch", producer_epoch, 0, INT16_MAX)
        check_int("coordinator_epoch", coordinator_epoch, -1, INT32_MAX)
        tps = check_topic_partitions(partitions)

        self._coordinator.write_markers(
            producer_id,
            producer_epoch,
            bool(committed),
            tps,
            coordinator_epoch,
            self._version(transaction_version),
            self._authorizer.check_write_markers,
        )

    def find_coordinator(self, key: str, key_type: str = "transaction") -> Coordinator:
        """The coordinator partition of a transactional id or group, and the current coordinator epoch."""
        if key_type not in ("transaction", "group"):
            raise InvalidRequestError(f"key_type: got {key_type!r}, expected transaction or group")
        check_text("key", key)
        with self._store.read() as connection:
            resource = "transactional_id" if key_type == "transaction" else "group"
            self._authorizer.check(connection, "describe", resource, key)
            return Coordinator(partition_for(key), transaction_rows.read_epoch(connection))

    def describe_producers(self, topic_partition: TopicPartition) -> list[ProducerState]:
        """The active producers of a partition (KIP-664). Unlike other read requests, raises
        InvalidTopicExceptionError for an invalid topic name."""
        tp = check_described_partition(topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            return producer_rows.describe(
                connection, partition_rows.read(connection, tp).partition_id
            )

    def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription]:
        """The state of each transactional id, without partitions of topics that the principal may not
        describe. Raises TransactionalIdNotFoundError for the first unknown id (KIP-664)."""
        check_collection("transactional_ids", transactional_ids)
        with self._store.read() as connection:
            return listing.describe(
                connection,
                transactional_ids,
                self._authorizer,
                self._coordinator.foresight(connection),
            )

    def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str = "",
    ) -> list[TransactionListing]:
        """List the transactions that match every filter (KIP-664); with `duration_ms` only those that began
        longer ago than that, with a pattern, in RE2's syntax, those whose whole id it matches. Raises
        InvalidRegularExpressionError."""
        check_texts("states", states)
        for producer_id in check_collection("producer_ids", producer_ids):
            check_int("producer_ids", producer_id, -INT64_MAX)
        check_int("duration_ms", duration_ms, -1)
        check_name("transactional_id_pattern", transactional_id_pattern)
        started_before = None if duration_ms < 0 else self._clock.time_ms() - duration_ms
        filters = (states, producer_ids, started_before)
        with self._store.read() as connection:
            foresight = self._coordinator.foresight(connection)
            found = listing.transactions(connection, *filters, self._authorizer, foresight)
        if not transactional_id_pattern:
            return found
        ids = tuple(transaction.transactional_id for transaction in found)
        matching = linear_regex.matching(transactional_id_pattern, ids)
        return [transaction for transaction in found if transaction.transactional_id in matching]

    def _may_commit(self, group_id: str, committer: Committer) -> Callable[[Unit], None]:
        """A function for use in a unit that checks the committer of offsets in a transaction (KIP-447)."""
        unknown = IllegalGenerationError(
            f"there is no group {group_id!r}, got a commit of generation {committer.generation_id}"
        )
        return lambda unit: check_committer(
            unit, group_id, committer, self._clock.time_ms(), unknown, is_transactional=True
        )
