"""The request level: one method per Kafka request, under Kafka's names. The only door for clients.

A request is checked as values, then authorised, then routed to the log or the coordinator. Each
call is atomic, and durable (per `durability`) when it returns. A transactional append alone is not
synced: the Prepare that decides its transaction is, after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from eosdb.broker import listing
from eosdb.broker.group_offsets import Committer
from eosdb.broker.metrics import RATES, counts_requests
from eosdb.broker.produce import ProduceHandler
from eosdb.broker.waiting import wait_for_change
from eosdb.clock import Clock
from eosdb.config import INT32_MAX, INT64_MAX, BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.placement import partition_for
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.decisions import expected_or_none
from eosdb.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidTopicExceptionError,
)
from eosdb.group_broker import GroupBroker
from eosdb.log import partition_rows as log_partitions
from eosdb.log import producer_rows, topics
from eosdb.log_broker import LogBroker
from eosdb.metrics import Metrics
from eosdb.model.values import (
    Coordinator,
    OffsetAndMetadata,
    ProduceResult,
    ProducerIdAndEpoch,
    ProducerState,
    RecordBatch,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from eosdb.store.store import Store
from eosdb.store.writing.joint_unit import JointUnit
from eosdb.store.writing.unit import Unit
from eosdb.validation import (
    INT16_MAX,
    check_collection,
    check_described_partition,
    check_group_id,
    check_identity,
    check_int,
    check_producer,
    check_text,
    check_texts,
    check_topic_partitions,
    check_transaction_version,
    check_transactional_id,
)


@counts_requests
class Broker(LogBroker, GroupBroker):
    """Kafka's requests on one file. Threads may share it."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        principal: str,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._config = config
        self.request_metrics: Final = Metrics(clock, RATES)
        self._authorizer = Authorizer(principal, config.super_users)
        self._produce = ProduceHandler(
            store, coordinator, clock, config, self._authorizer, self.request_metrics
        )
        LogBroker.__init__(self, store, coordinator, clock, config, self._authorizer)
        GroupBroker.__init__(self, store, coordinator, clock, config, self._authorizer)

    # -- producing ------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> ProducerIdAndEpoch:
        """A producer id, or with a transactional id its next epoch (KIP-98, KIP-360).

        Raises ConcurrentTransactionsError when an open transaction had to be aborted first: call
        again. Raises ProducerFencedError, InvalidTransactionTimeoutError, InvalidRequestError and
        the authorization errors.
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
        """Open the transaction, or widen it, by these partitions: all of them or none.

        Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError,
        UnknownTopicOrPartitionError and the authorization errors.
        """
        check_identity(transactional_id, producer_id, producer_epoch)
        tps = frozenset(check_topic_partitions(partitions))

        def authorize(unit: Unit) -> None:
            self._may_transact(transactional_id)(unit)
            for topic in sorted({tp.topic for tp in tps}):
                self._authorizer.check(unit, "write", "topic", topic)

        self._coordinator.add_to_transaction(
            transactional_id, producer_id, producer_epoch, tps, frozenset(), authorize
        )

    def produce(
        self,
        batches: Mapping[TopicPartition, RecordBatch],
        *,
        transactional_id: str | None = None,
        acks: int | str = -1,
        timeout_ms: int = 30_000,
        transaction_version: int | None = None,
    ) -> dict[TopicPartition, ProduceResult]:
        """Append one batch to each partition, all in one unit; a partition's error is its own.

        A batch that is stored already is answered with its original offsets and `duplicate=True`.
        Under transaction version 2 (the client's; None: the highest served) a transactional batch
        brings its partition into the transaction, and begins one if none is open (KIP-890).
        """
        version = self._version(transaction_version)
        return self._produce.produce(batches, transactional_id, acks, version)

    def together(self, *, sync: bool) -> AbstractContextManager[JointUnit]:
        """Have this thread's requests in the block share a commit, synced or not; see `Store.together`."""
        return self._coordinator.together(sync=sync)

    def append(
        self,
        topic_partition: TopicPartition,
        batch: RecordBatch,
        *,
        transactional_id: str | None = None,
        transaction_version: int | None = None,
    ) -> ProduceResult:
        """`produce` for one partition; raises what `produce` puts into the result's `error`."""
        (result,) = self.produce(
            {topic_partition: batch},
            transactional_id=transactional_id,
            transaction_version=transaction_version,
        ).values()
        if result.error is not None:
            raise result.error
        return result

    def add_offsets_to_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        """Have the transaction carry offsets of the group. Errors as for add_partitions_to_txn."""
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
    ) -> None:
        """Offsets that become the group's when the transaction commits: all of them or none.

        Under transaction version 2 the group joins the transaction by this (see `produce`).
        Raises InvalidTxnStateError, InvalidProducerEpochError, InvalidProducerIdMappingError,
        InvalidGroupIdError, IllegalGenerationError, UnknownMemberIdError,
        UnknownTopicOrPartitionError, OffsetMetadataTooLargeError and the authorization errors.
        """
        check_identity(transactional_id, producer_id, producer_epoch)
        if check_group_id(group_id) == "":
            raise InvalidGroupIdError("group_id: got an empty one, expected the id of a group")
        commits = group_offsets.check_offsets(offsets)

        def authorize(unit: Unit) -> None:
            self._may_transact(transactional_id)(unit)
            self._authorizer.check(unit, "read", "group", group_id)
            for topic in sorted({commit.topic for commit in commits}):
                self._authorizer.check(unit, "read", "topic", topic)

        self._coordinator.txn_offset_commit(
            transactional_id,
            group_id,
            producer_id,
            producer_epoch,
            commits,
            self._may_commit(group_id, Committer(generation_id, member_id, group_instance_id)),
            self._version(transaction_version),
            authorize,
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
        """Commit or abort. Once this returns, or the outcome has been decided, it stands.

        Returns what to use next: under transaction version 2 the next epoch. Raises
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
        """Write the markers of one transaction: all partitions are checked first, then all written.

        What the coordinator itself uses; and how a hanging transaction is ended by hand (KIP-664).
        Under transaction version 2 they carry the epoch after the transaction's.
        Raises InvalidProducerEpochError, TransactionCoordinatorFencedError,
        UnknownTopicOrPartitionError and ClusterAuthorizationFailedError.
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

    # -- reading --------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics the principal may describe."""
        return list(self.topic_partitions())

    def topic_partitions(self) -> dict[str, int]:
        """All topics the principal may describe, and how many partitions each has."""
        with self._store.read() as connection:
            return {
                name: count
                for name, count in topics.partition_counts(connection)
                if self._authorizer.allows(connection, "describe", "topic", name)
            }

    def data_version(self) -> int:
        """A number that changes with every commit to the file, whoever makes it."""
        return self._store.data_version()

    def wait_for_change(
        self, version: int, timeout_ms: int, cancelled: Callable[[], bool] = lambda: False
    ) -> int:
        """Wait until somebody commits after `data_version` was `version`; the number then.

        Also returns after `timeout_ms`, and soon after `cancelled` says so. An idle reader costs next to
        nothing.
        """
        return wait_for_change(self._store, self._clock, version, timeout_ms, cancelled)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has; with auto_create_topics_enable it is made if
        absent."""
        check_text("topic", topic, InvalidTopicExceptionError)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "topic", topic)
            count = topics.partition_count(connection, topic)
        if count is not None:
            return count
        if not self._config.auto_create_topics_enable:
            raise topics.unknown(topic)
        self._coordinator.write(lambda unit: self._produce.ensure_topic(unit, topic))
        return self.partitions_for(topic)

    # -- administration -------------------------------------------------------------------------

    def find_coordinator(self, key: str, key_type: str = "transaction") -> Coordinator:
        """The coordinator partition of a transactional id or group, and the epoch in office."""
        if key_type not in ("transaction", "group"):
            raise InvalidRequestError(f"key_type: got {key_type!r}, expected transaction or group")
        check_text("key", key)
        with self._store.read() as connection:
            resource = "transactional_id" if key_type == "transaction" else "group"
            self._authorizer.check(connection, "describe", resource, key)
            return Coordinator(partition_for(key), transaction_rows.read_epoch(connection))

    def describe_producers(self, topic_partition: TopicPartition) -> list[ProducerState]:
        """What the partition knows of its producers (KIP-664). Alone among the requests that read, it
        raises InvalidTopicExceptionError for what can be no topic's name."""
        tp = check_described_partition(topic_partition)
        with self._store.read() as connection:
            self._authorizer.check(connection, "read", "topic", tp.topic)
            return producer_rows.describe(
                connection, log_partitions.read(connection, tp).partition_id
            )

    def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription]:
        """What the coordinator knows, without partitions of topics that the principal may not describe.
        Raises TransactionalIdNotFoundError for the first unknown id (KIP-664)."""
        check_collection("transactional_ids", transactional_ids)
        with self._store.read() as connection:
            return listing.describe(connection, transactional_ids, self._authorizer)

    def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = -1,
    ) -> list[TransactionListing]:
        """Transactions that meet every filter; `duration_ms` counts from the last start
        (KIP-664)."""
        check_texts("states", states)
        for producer_id in check_collection("producer_ids", producer_ids):
            check_int("producer_ids", producer_id, -INT64_MAX)
        check_int("duration_ms", duration_ms, -1)
        started_before = None if duration_ms < 0 else self._clock.time_ms() - duration_ms
        filters = (states, producer_ids, started_before)
        with self._store.read() as connection:
            return listing.transactions(connection, *filters, self._authorizer)

    @property
    def clock(self) -> Clock:
        """The clock that times of requests are taken from."""
        return self._clock

    @property
    def transaction_version(self) -> int:
        """The highest transaction version that is served."""
        return self._config.transaction_version

    def _version(self, asked: int | None) -> int:
        return check_transaction_version(asked, self._config.transaction_version)

    def _may_transact(self, tid: str) -> Callable[[Unit], None]:
        return lambda unit: self._authorizer.check(unit, "write", "transactional_id", tid)
