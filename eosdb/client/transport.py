"""How a client's requests reach the broker: the seam where a network, or a bad one, can be put in.

A client knows only `Transport`. `DirectTransport` calls the broker in the same process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from eosdb.model import (
    FetchResult,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionOffsets,
    ProduceResult,
    ProducerIdAndEpoch,
    RecordBatch,
    TopicPartition,
)

if TYPE_CHECKING:
    from eosdb.broker import Broker


class Transport(Protocol):
    """The broker's requests that clients make, with the broker's answers and errors."""

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
    ) -> dict[TopicPartition, ProduceResult]: ...

    def add_offsets_to_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None: ...

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
    ) -> None: ...

    def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, committed: bool
    ) -> ProducerIdAndEpoch: ...

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: str = "read_uncommitted",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
    ) -> FetchResult: ...

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> OffsetAndTimestamp: ...

    def offsets(self, topic_partition: TopicPartition) -> PartitionOffsets: ...

    def offset_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None: ...

    def offset_fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def topics(self) -> list[str]: ...

    def partitions_for(self, topic: str) -> int: ...


def DirectTransport(broker: Broker) -> Transport:
    """The broker itself is the transport when it is in the same process."""
    return broker
