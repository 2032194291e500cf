"""The consumer: Kafka's, by its settings and calls; `read_committed` unless asked otherwise.

A position is the offset of the next record to hand out; it moves past markers and aborted data. Until
consumer groups rebalance, `subscribe` gives this consumer every partition of its topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Unpack

from eosdb.client.config import ConsumerConfig, ConsumerSettings
from eosdb.client.fetcher import Cursor, Fetcher
from eosdb.client.reading import ReadRequests
from eosdb.client.transport import Transport
from eosdb.clock import Clock
from eosdb.errors import (
    ConfigError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from eosdb.metrics import Metrics
from eosdb.model import (
    EARLIEST,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

OnChange = Callable[[list[TopicPartition]], object]

_POLL_STEP_MS: Final = 5
_UNSTABLE_WAIT_MS: Final = 60_000
_RATES: Final = ("records-consumed", "fetch")


class Consumer:
    """Reads records of topics or partitions, alone or for a group. Not to be shared by threads."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        group_id: str | None = None,
        **config: Unpack[ConsumerConfig],
    ) -> None:
        try:
            self._settings = ConsumerSettings(**config)
        except TypeError as error:
            raise ConfigError(f"a consumer has no such setting: {error}") from None
        if group_id is not None and (not isinstance(group_id, str) or not group_id):
            raise ConfigError(f"group_id: got {group_id!r}, expected text that is not empty")
        self._metrics = Metrics(clock, _RATES)
        self._broker = ReadRequests(transport, clock, self._settings, self._metrics)
        self._clock = clock
        self._group_id = group_id
        self._subscription: tuple[str, ...] | re.Pattern[str] | None = None
        self._on_assign: OnChange | None = None
        self._on_revoke: OnChange | None = None
        self._next_auto_commit_ms = clock.monotonic_ms() + self._settings.auto_commit_interval_ms
        self._fetcher = Fetcher(self._broker, self._settings, self._committed_offset)
        self._cursors = self._fetcher.cursors
        self._closed = False

    # -- what to read ---------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        on_assign: OnChange | None = None,
        on_revoke: OnChange | None = None,
    ) -> None:
        """Read whole topics, by name or by a pattern that names must match.

        Raises UnknownTopicOrPartitionError for a name without topic.
        """
        self._check_open()
        if isinstance(topics, re.Pattern):
            self._subscription = topics
        else:
            self._subscription = (topics,) if isinstance(topics, str) else tuple(topics)
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._refresh()

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self._replace(set())
        self._subscription = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises UnknownTopicOrPartitionError."""
        self._check_open()
        tps = {TopicPartition(*tp) for tp in partitions}
        for tp in tps:
            if tp.partition >= self._broker.partitions_for(tp.topic):
                raise UnknownTopicOrPartitionError(f"{tp}: the topic has no such partition")
        self._subscription = None
        self._replace(tps)

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads."""
        return set(self._cursors)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until `resume`."""
        for tp in partitions:
            self._cursor(tp).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._cursor(tp).paused = False

    def paused(self) -> set[TopicPartition]:
        return {tp for tp, cursor in self._cursors.items() if cursor.paused}

    # -- reading --------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` (default max_poll_records) records, waiting at most `timeout_ms`.

        The partitions take turns. Raises OffsetOutOfRangeError with auto_offset_reset="none", and the
        broker's errors.
        """
        self._check_open()
        if self._subscription is None and not self._cursors:
            raise IllegalStateError("subscribe to topics or assign partitions before poll")
        limit = self._settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise InvalidRequestError(f"max_records: got {limit}, expected at least 1")
        self._auto_commit()
        deadline = self._clock.monotonic_ms() + timeout_ms
        while True:
            if isinstance(self._subscription, re.Pattern):
                self._refresh()
            records = self._fetcher.take(limit)
            self._metrics.count("records-consumed", len(records))
            if records or self._clock.monotonic_ms() >= deadline:
                return records
            self._clock.sleep_ms(_POLL_STEP_MS)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records as they come, without end; close the consumer to stop."""
        while not self._closed:
            yield from self.poll(timeout_ms=1_000)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to hand out."""
        cursor = self._cursor(partition)
        if cursor.position is None:
            self._fetcher.locate(partition, cursor)
        assert cursor.position is not None
        return cursor.position

    def position_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every position, ready to be committed or sent to a transaction."""
        return {tp: OffsetAndMetadata(self.position(tp)) for tp in sorted(self._cursors)}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises InvalidRequestError for a negative one."""
        if not isinstance(offset, int) or offset < 0:
            raise InvalidRequestError(f"offset: got {offset!r}, expected a whole number from 0 on")
        self._cursor(partition).seek(offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go to the log start; of all partitions when none is named."""
        for tp in list(partitions) or list(self._cursors):
            self._cursor(tp).seek(self._broker.list_offsets(tp, EARLIEST).offset)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go to the end (the LSO under read_committed); of all partitions when none is named."""
        for tp in list(partitions) or list(self._cursors):
            self._cursor(tp).seek(self._fetcher.end(tp))

    # -- offsets --------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """Commit offsets of the group, by default every position. Durable when this returns."""
        self._check_open()
        if offsets is None:
            offsets = {
                tp: OffsetAndMetadata(cursor.position)
                for tp, cursor in self._cursors.items()
                if cursor.position is not None
            }
        if offsets:
            self._broker.offset_commit(self._group(), offsets)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; a partition without one is absent.

        Under read_committed it waits for transactions that hold one of them (KIP-447).
        """
        self._check_open()
        stable = self._settings.isolation_level == "read_committed"
        asked = list(partitions)
        deadline = self._clock.monotonic_ms() + _UNSTABLE_WAIT_MS
        while True:
            try:
                return self._broker.offset_fetch(self._group(), asked, require_stable=stable)
            except UnstableOffsetCommitError:
                if self._clock.monotonic_ms() >= deadline:
                    raise
                self._clock.sleep_ms(_POLL_STEP_MS)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._broker.list_offsets(tp, EARLIEST).offset for tp in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where reading ends: the last stable offset under read_committed, else the log end."""
        return {tp: self._fetcher.end(tp) for tp in partitions}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms); None where there is none."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise InvalidRequestError(f"{tp}: got time {timestamp}, expected ms from 0 on")
            answer = self._broker.list_offsets(
                tp, timestamp, isolation_level=self._settings.isolation_level
            )
            found[tp] = answer if answer.offset >= 0 else None
        return found

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets between each position and the end this consumer may read to."""
        return {
            tp: max(self._fetcher.end(tp) - self.position(tp), 0) for tp in sorted(self._cursors)
        }

    def metrics(self) -> dict[str, float]:
        """Counters, averages and rates under Kafka's names, from this consumer's beginning on.

        `records-lag-max` is that of the furthest partition, from when it was last fetched.
        """
        lags = [c.fetched_end - (c.position or 0) for c in self._cursors.values()]
        return {**self._metrics.snapshot(), "records-lag-max": max([0, *lags])}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, for `send_offsets_to_transaction`."""
        return ConsumerGroupMetadata(
            self._group(), group_instance_id=self._settings.group_instance_id
        )

    def close(self) -> None:
        """Commit if enable_auto_commit, and let go of the partitions; idempotent."""
        if self._closed:
            return
        if self._settings.enable_auto_commit and self._group_id is not None:
            self.commit()
        self.unsubscribe()
        self._closed = True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- small steps ----------------------------------------------------------------------------

    def _committed_offset(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        return None if self._group_id is None else self.committed([tp]).get(tp)

    def _refresh(self) -> None:
        """Take up the partitions the subscription means now."""
        subscription = self._subscription
        if isinstance(subscription, re.Pattern):
            topics = [name for name in self._broker.topics() if subscription.fullmatch(name)]
        else:
            topics = list(subscription or ())
        self._replace(
            {
                TopicPartition(topic, partition)
                for topic in topics
                for partition in range(self._broker.partitions_for(topic))
            }
        )

    def _replace(self, tps: set[TopicPartition]) -> None:
        revoked = sorted(set(self._cursors) - tps)
        assigned = sorted(tps - set(self._cursors))
        if revoked and self._on_revoke is not None:
            self._on_revoke(revoked)
        for tp in revoked:
            del self._cursors[tp]
        for tp in assigned:
            self._cursors[tp] = Cursor()
        if assigned and self._on_assign is not None:
            self._on_assign(assigned)

    def _auto_commit(self) -> None:
        now = self._clock.monotonic_ms()
        if (
            self._settings.enable_auto_commit
            and self._group_id is not None
            and now >= self._next_auto_commit_ms
        ):
            self.commit()
            self._next_auto_commit_ms = now + self._settings.auto_commit_interval_ms

    def _cursor(self, partition: TopicPartition) -> Cursor:
        self._check_open()
        try:
            return self._cursors[partition]
        except (KeyError, TypeError):
            raise IllegalStateError(
                f"{partition!r} is not assigned to this consumer; subscribe or assign it first"
            ) from None

    def _group(self) -> str:
        if self._group_id is None:
            raise InvalidGroupIdError(
                "this consumer has no group_id; give it one to commit offsets"
            )
        return self._group_id

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the consumer has been closed")
