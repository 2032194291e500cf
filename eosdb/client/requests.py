"""The requests that clients send to a broker, as protocols: `Broker` implements them, a transport delivers
them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from eosdb.model.fetched import Block
from eosdb.model.reports import Lag
from eosdb.model.requests import A, Request
from eosdb.model.values import (
    GroupDescription,
    IsolationLevel,
    JoinGroupResult,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionOffsets,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    SyncGroupResult,
    TopicMetadata,
    TopicPartition,
)


class Presence(Protocol):
    """The kernel lock that shows that a group member's process is alive, so that its death is noticed at
    once."""

    @property
    def number(self) -> int:
        """The number of the lock, which the member sends when it joins."""

    def look(self) -> None:
        """Remove members whose processes have died from their groups. Cheap, and may be called often."""

    def end(self) -> None:
        """Release the lock: the member has left."""


@runtime_checkable
class IsPresent(Protocol):
    """A broker, or a transport to one, in a process that has the file open."""

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        """Return a new presence, for a member that is about to join or for the owner of a transactional id
        (see `owned_ids`); None if no lock is available."""


class BrokerRequests(Protocol):
    """The requests that clients send, with the broker's responses and errors."""

    @property
    def transaction_version(self) -> int: ...

    def ask(self, request: Request[A]) -> A: ...

    def init_producer_id(
        self,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> ProducerIdAndEpoch: ...

    def add_partitions_to_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None: ...

    def produce(
        self,
        batches: Mapping[TopicPartition, RecordBatch],
        *,
        transactional_id: str | None = None,
        acks: int | str = -1,
        timeout_ms: int = 30_000,
        transaction_version: int | None = None,
    ) -> dict[TopicPartition, ProduceResult]: ...

    def add_offsets_to_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None: ...

    def end_txn(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        *,
        transaction_version: int | None = None,
    ) -> ProducerIdAndEpoch: ...

    def fetch_data(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        check_crcs: bool = True,
        topic_id: UUID | None = None,
    ) -> Block: ...

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> OffsetAndTimestamp: ...

    def offsets(self, topic_partition: TopicPartition) -> PartitionOffsets: ...

    def lag(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel = "read_committed",
    ) -> Lag: ...

    def offset_fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def join_group(
        self,
        group_id: str,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = (),
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        owner_lock: int = 0,
    ) -> JoinGroupResult: ...

    def sync_group(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        *,
        group_instance_id: str | None = None,
        assignments: Mapping[str, bytes] | None = None,
    ) -> SyncGroupResult: ...

    def heartbeat(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        *,
        group_instance_id: str | None = None,
    ) -> None: ...

    def leave_group(self, group_id: str, member_ids: str | Collection[str]) -> None: ...

    def describe_group(self, group_id: str) -> GroupDescription: ...

    def topic_partitions(self) -> dict[str, int]: ...

    def partitions_for(self, topic: str) -> int: ...

    def topic(self, name: str, *, may_create: bool = True) -> TopicMetadata: ...

    def data_version(self) -> int: ...

    def wait_for_change(
        self, version: int, timeout_ms: int, cancelled: Callable[[], bool]
    ) -> int: ...
