"""A consumer's requests: all of them may be carried out twice, so a lost one is simply repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from eosdb.client.config import ConsumerSettings
from eosdb.client.transport import Request, Transport, call
from eosdb.clock import Clock
from eosdb.errors import EosdbError
from eosdb.metrics import Metrics
from eosdb.model import FetchResult, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")


class ReadRequests:
    """The broker as a consumer sees it through its transport."""

    def __init__(
        self, transport: Transport, clock: Clock, settings: ConsumerSettings, metrics: Metrics
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._metrics = metrics

    def fetch(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        isolation_level: str,
        max_records: int,
    ) -> FetchResult:
        fetched = self._call(
            "fetch",
            lambda broker: broker.fetch(
                topic_partition, offset, isolation_level=isolation_level, max_records=max_records
            ),
        )
        self._metrics.observe("records-per-request", len(fetched.records))
        return fetched

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> OffsetAndTimestamp:
        return self._call(
            "list_offsets",
            lambda broker: broker.list_offsets(
                topic_partition, timestamp, isolation_level=isolation_level
            ),
        )

    def offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self._call("offset_commit", lambda broker: broker.offset_commit(group_id, offsets))

    def offset_fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._call(
            "offset_fetch",
            lambda broker: broker.offset_fetch(group_id, partitions, require_stable=require_stable),
        )

    def topics(self) -> list[str]:
        return self._call("topics", lambda broker: broker.topics())

    def partitions_for(self, topic: str) -> int:
        return self._call("partitions_for", lambda broker: broker.partitions_for(topic))

    def _call(self, name: str, request: Request[T]) -> T:
        start = self._metrics.now_ns()
        try:
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
