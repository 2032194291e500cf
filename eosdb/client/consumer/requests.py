"""A consumer's requests. All of them are safe to repeat, so a lost request is simply sent again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from eosdb.client.consumer.settings import ConsumerSettings
from eosdb.client.requests import Presence
from eosdb.client.transport import Request, Transport, call, presence
from eosdb.errors import EosdbError
from eosdb.model.clock import Clock
from eosdb.model.fetched import FetchedData
from eosdb.model.metrics import Metrics
from eosdb.model.reports import Lag
from eosdb.model.requests import OffsetCommit
from eosdb.model.values import (
    ConsumerGroupMetadata,
    GroupDescription,
    IsolationLevel,
    JoinGroupResult,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SyncGroupResult,
    TopicMetadata,
    TopicPartition,
)

T = TypeVar("T")


class ConsumerRequests:
    """Sends a consumer's requests through its transport. Threads may share it."""

    def __init__(
        self, transport: Transport, clock: Clock, settings: ConsumerSettings, metrics: Metrics
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._lock = threading.Lock()

    # -- records --------------------------------------------------------------------------------

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: IsolationLevel,
        max_records: int,
        topic_id: UUID | None,
    ) -> FetchedData:
        fetched = self._call(
            "fetch",
            lambda broker: broker.fetch_data(
                topic_partition,
                offset,
                isolation_level=isolation_level,
                max_records=max_records,
                check_crcs=self._settings.check_crcs,
                topic_id=topic_id,
            ),
        )
        self._metrics.observe("records-per-request", len(fetched.offsets))
        return fetched

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> OffsetAndTimestamp:
        return self._call(
            "list_offsets",
            lambda broker: broker.list_offsets(
                topic_partition, timestamp, isolation_level=isolation_level
            ),
        )

    def lag(
        self, topic_partition: TopicPartition, offset: int, isolation_level: IsolationLevel
    ) -> Lag:
        return self._call(
            "lag",
            lambda broker: broker.lag(topic_partition, offset, isolation_level=isolation_level),
        )

    def topic_partitions(self) -> dict[str, int]:
        return self._call("topic_partitions", lambda broker: broker.topic_partitions())

    def topic(self, name: str, *, may_create: bool = True) -> TopicMetadata:
        """Return the topic that has the name now. Raises UnknownTopicOrPartitionError."""
        return self._call("topic", lambda broker: broker.topic(name, may_create=may_create))

    def partitions_for(self, topic: str) -> int:
        return self._call("partitions_for", lambda broker: broker.partitions_for(topic))

    def data_version(self) -> int:
        return self._call("data_version", lambda broker: broker.data_version())

    def wait_for_change(self, version: int, until_ms: int, woken: Callable[[], bool]) -> int:
        """Wait until the data version differs from `version`, until `until_ms` (monotonic), or until
        `woken` returns True. Returns the current version."""
        while (left_ms := until_ms - self._clock.monotonic_ms()) > 0 and not woken():
            now_at = self._wait(version, min(left_ms, self._settings.fetch_max_wait_ms), woken)
            if now_at != version:
                return now_at
        return version

    def _wait(self, version: int, timeout_ms: int, woken: Callable[[], bool]) -> int:
        return self._call(
            "wait_for_change",
            lambda broker: broker.wait_for_change(version, timeout_ms, woken),
        )

    # -- offsets --------------------------------------------------------------------------------

    def offset_commit(
        self,
        member: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self._call(
            "offset_commit",
            lambda broker: broker.ask(OffsetCommit(group=member, offsets=offsets)),
        )

    def offset_fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        committed_offsets = self._call(
            "offset_fetch",
            lambda broker: broker.offset_fetch(group_id, partitions, require_stable=require_stable),
        )
        # Kafka's clients may commit a negative offset, and treat it as none.
        return {
            tp: committed for tp, committed in committed_offsets.items() if committed.offset >= 0
        }

    # -- membership -----------------------------------------------------------------------------

    def presence(self) -> Presence | None:
        """Return a new presence, for a member that is about to join."""
        return presence(self._transport)

    def join_group(
        self,
        group_id: str,
        member_id: str,
        protocols: Sequence[tuple[str, bytes]],
        owner_lock: int,
    ) -> JoinGroupResult:
        settings = self._settings
        return self._call(
            "join_group",
            lambda broker: broker.join_group(
                group_id,
                member_id=member_id,
                group_instance_id=settings.group_instance_id,
                client_id=settings.client_id or "",
                protocols=protocols,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.max_poll_interval_ms,
                owner_lock=owner_lock,
            ),
        )

    def sync_group(
        self, member: ConsumerGroupMetadata, assignments: Mapping[str, bytes]
    ) -> SyncGroupResult:
        return self._call(
            "sync_group",
            lambda broker: broker.sync_group(
                member.group_id,
                member.generation_id,
                member.member_id,
                group_instance_id=member.group_instance_id,
                assignments=assignments,
            ),
        )

    def heartbeat(self, member: ConsumerGroupMetadata) -> None:
        self._call(
            "heartbeat",
            lambda broker: broker.heartbeat(
                member.group_id,
                member.generation_id,
                member.member_id,
                group_instance_id=member.group_instance_id,
            ),
        )

    def describe_group(self, group_id: str) -> GroupDescription:
        return self._call("describe_group", lambda broker: broker.describe_group(group_id))

    def leave_group(self, group_id: str, member_id: str) -> None:
        self._call("leave_group", lambda broker: broker.leave_group(group_id, member_id))

    def _call(self, name: str, request: Request[T]) -> T:
        start = self._metrics.now_ns()
        try:
            with self._lock:
                return call(
                    self._transport,
                    self._clock,
                    name,
                    request,
                    request_timeout_ms=self._settings.request_timeout_ms,
                    retry_backoff_ms=self._settings.retry_backoff_ms,
                    timeout_ms=self._settings.default_api_timeout_ms,
                )
        except EosdbError as error:
            self._metrics.error(error)
            raise
        finally:
            self._metrics.count(name.replace("_", "-"))
            elapsed_ms = (self._metrics.now_ns() - start) / 1_000_000
            self._metrics.observe(f"{name.replace('_', '-')}-latency", elapsed_ms)
