"""A consumer's requests. All are safe to repeat, so a lost request is simply sent again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from eosdb.client.consumer.settings import ConsumerSettings
from eosdb.client.transport import Transport, call
from eosdb.errors import ApiError, EosdbError
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics
from eosdb.model.requests import OffsetFetch, Request, WaitForChange
from eosdb.model.values import OffsetAndMetadata, TopicPartition

A = TypeVar("A")


class ConsumerRequests:
    """Sends a consumer's requests through its transport. Threads may share it."""

    def __init__(
        self, transport: Transport, clock: Clock, settings: ConsumerSettings, metrics: Metrics
    ) -> None:
        self.transport: Final = transport
        self.clock: Final = clock
        self.settings: Final = settings
        self.metrics: Final = metrics
        self._lock = threading.Lock()

    def ask(self, request: Request[A]) -> A:
        """Send a request until its response arrives, and return the response. Raises EosdbError."""
        start = self.metrics.now_ns()
        try:
            with self._lock:
                return call(
                    self.transport,
                    self.clock,
                    request,
                    retry_backoff_ms=self.settings.retry_backoff_ms,
                    timeout_ms=self.settings.default_api_timeout_ms,
                )
        except EosdbError as error:
            self.metrics.error(error)
            raise
        finally:
            name = request.name.replace("_", "-")
            elapsed_ms = (self.metrics.now_ns() - start) / 1_000_000
            self.metrics.record({name: 1}, {f"{name}-latency": elapsed_ms})

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | ApiError]:
        """Return the group's committed offsets, or the error of a partition whose offset is unknown."""
        fetch = OffsetFetch(group_id=group_id, partitions=partitions, require_stable=require_stable)
        # Kafka's clients may commit a negative offset to mean no offset.
        return {
            tp: committed
            for tp, committed in self.ask(fetch).items()
            if isinstance(committed, ApiError) or committed.offset >= 0
        }

    def wait_for_change(self, version: int, until_ms: int, woken: Callable[[], bool]) -> int:
        """Wait until the data version differs from `version`, until `until_ms` (monotonic), or until
        `woken` returns True. Returns the current version."""
        while (left_ms := until_ms - self.clock.monotonic_ms()) > 0 and not woken():
            timeout_ms = min(left_ms, self.settings.fetch_max_wait_ms)
            now_at = self.ask(WaitForChange(version, timeout_ms, woken))
            if now_at != version:
                return now_at
        return version
