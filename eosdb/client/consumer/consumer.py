"""The consumer, with the settings and calls of Kafka's; `read_committed` by default.

A position is the offset of the next record to return; it moves past markers and aborted data. A consumer
with a group_id shares the partitions with the group's other members; without a group_id it reads all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, Unpack

from eosdb import errors
from eosdb.client.consumer.fetcher import AssignedPartitions, Cursor, Fetcher, OnChange, records_of
from eosdb.client.consumer.membership import MEMBERSHIP_ERRORS, Membership
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.consumer.settings import ConsumerConfig, ConsumerSettings
from eosdb.client.transport import Transport
from eosdb.model import requests
from eosdb.model.clock import Clock
from eosdb.model.closing import Closeable
from eosdb.model.config import checked_settings
from eosdb.model.metrics import Metrics
from eosdb.model.protocol.consumer_questions import Seen, TopicsAndGroup
from eosdb.model.records.columns import PartitionColumns, PolledColumns
from eosdb.model.reports import Lag
from eosdb.model.requests import (
    DataVersion,
    ListOffsets,
    OffsetCommit,
    Topic,
    TopicMetadata,
)
from eosdb.model.validation import check_text, check_topic_partitions
from eosdb.model.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    Key,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    Value,
)
from eosdb.system.signals import is_of_a_signal

_RATES: Final = ("records-consumed", "fetch")


class Consumer(Closeable, Generic[Key, Value]):
    """Reads records of topics or partitions, alone or in a group. Not thread-safe: one thread at a time."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        group_id: str | None = None,
        *,
        key_deserializer: Callable[[bytes], Key] | None = None,
        value_deserializer: Callable[[bytes], Value] | None = None,
        **config: Unpack[ConsumerConfig],
    ) -> None:
        makers = {"key_deserializer": key_deserializer, "value_deserializer": value_deserializer}
        self._settings = checked_settings(ConsumerSettings, "consumer", {**config, **makers})
        if group_id is not None and (not isinstance(group_id, str) or not group_id):
            raise errors.ConfigError(f"group_id: got {group_id!r}, expected text that is not empty")
        self._metrics = Metrics(clock, _RATES)
        self._broker = ConsumerRequests(transport, clock, self._settings, self._metrics)
        self._clock = clock
        self._group_id = group_id
        self._subscription: tuple[str, ...] | re.Pattern[str] | None = None
        self._topics: tuple[str, ...] = ()
        self._fetcher = Fetcher(self._broker, self._committed, self._commit_beginning)
        self._cursors = self._fetcher.cursors
        self._partitions = AssignedPartitions(self._cursors, self._auto_commit)
        self._membership: Membership | None = None
        if group_id is not None:
            self._membership = Membership(self._broker, group_id, self._partitions)
        now = clock.monotonic_ms()
        self._next_auto_commit_ms = now + self._settings.auto_commit_interval_ms
        self._next_look_ms = now + self._settings.metadata_max_age_ms
        self._counts: Mapping[str, int] | None = None
        """Without a group: the numbers of partitions of which all are assigned."""
        self._version: int | None = None
        """The data version before the last pass over the partitions; None if that is unknown."""
        self._woken = False  # Set without a lock, because a signal handler may call `wakeup`.
        self._closed = False

    # -- what to read ---------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        on_assign: OnChange | None = None,
        on_revoke: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> None:
        """Read topics, given by name or by a pattern that the whole name must match, as a member of the
        group.

        The callbacks receive the partitions that were assigned, revoked, or lost without being revoked;
        without `on_lost`, `on_revoke` is called instead. They run inside `subscribe`, `poll` and
        `close`. Topics and partitions created later are picked up. Raises UnknownTopicOrPartitionError if a
        named topic does not exist, and the errors of a group that cannot be joined.
        """
        self._check_open()
        named: tuple[str, ...] | None = None
        if not isinstance(topics, re.Pattern):
            named = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
            for topic in named:
                check_text("topic", topic, errors.InvalidTopicExceptionError)
        existing, older = self._broker.ask(TopicMetadata(named)), self._fetcher.older or {}
        counts = {topic.name: topic.partitions for topic in existing}
        for topic in named or ():
            # Topics in `read_whole` need not exist yet: a processor creates its own later.
            if topic not in self._fetcher.read_whole:
                counts[topic] = self._broker.ask(Topic(topic)).partitions
        if self._subscription is None and self._cursors:
            self._partitions.replace(())
        self._subscription = topics if isinstance(topics, re.Pattern) else named
        self._fetcher.older = {
            t.topic_id: older.get(t.topic_id, 0) if t.name in self._topics else t.partitions
            for t in existing
        }
        self._partitions.listen(on_assign, on_revoke, on_lost)
        self._match(counts)
        self._advance()

    def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        try:
            if self._cursors:
                self._partitions.revoke(list(self._cursors))
        finally:  # Leave the group even if a callback or a commit fails.
            if self._membership is not None and self._subscription is not None:
                self._membership.leave()
            self._subscription, self._topics, self._fetcher.older = None, (), None
            self._counts = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group assignment. Raises UnknownTopicOrPartitionError."""
        self._check_open()
        tps = {TopicPartition(*tp) for tp in partitions}
        metadata = {name: self._broker.ask(Topic(name)) for name in {tp.topic for tp in tps}}
        for tp in tps:
            if tp.partition >= metadata[tp.topic].partitions:
                raise errors.UnknownTopicOrPartitionError(f"{tp}: the topic has no such partition")
        if self._subscription is not None:
            self.unsubscribe()
        self._partitions.listen(None, None, None)
        self._partitions.replace(tps)
        self._fetcher.meet(metadata.values())

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads."""
        return set(self._cursors)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions from `poll` until `resume`."""
        for tp in partitions:
            self._cursor(tp).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        for tp in partitions:
            self._cursor(tp).resume()

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        return {tp for tp, cursor in self._cursors.items() if cursor.paused}

    # -- reading --------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Return up to `max_records` records (default: max_poll_records), waiting for the first at most
        `timeout_ms`.

        The partitions take turns. Rebalances happen here. Raises OffsetOutOfRangeError with
        auto_offset_reset="none", WakeupError, FencedInstanceIdError when another consumer has taken over
        this group_instance_id, and the broker's errors.
        """
        found = self._poll(timeout_ms, max_records)
        try:
            return records_of(found)
        except MemoryError:  # Seek back, because the program got no records.
            for part in reversed(found):
                self._cursor(TopicPartition(part.topic, part.partition)).seek(part.offsets[0])
            raise

    def poll_columns(self, timeout_ms: int = 0, max_records: int | None = None) -> PolledColumns:
        """Like `poll`, but return the records column by column instead of as an object each."""
        return PolledColumns(tuple(self._poll(timeout_ms, max_records)))

    def _poll(self, timeout_ms: int, max_records: int | None) -> list[PartitionColumns]:
        self._check_open()
        if self._subscription is None and not self._cursors:
            raise errors.IllegalStateError("subscribe to topics or assign partitions before poll")
        limit = self._settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise errors.InvalidRequestError(f"max_records: got {limit}, expected at least 1")
        now = self._clock.monotonic_ms()
        if now >= self._next_auto_commit_ms:
            self._auto_commit()
        deadline = now + timeout_ms
        version, self._version = self._version, None
        is_read = version is not None and deadline > now
        while True:
            # Look for new topics before `collect`: a failure after it would lose the records.
            if self._subscription is not None and now >= self._next_look_ms:
                self._look()
            come_back = self._advance()
            try:
                # At the end of every partition, `wait_for_change` knows whether there is anything new.
                at_end = is_read and self._fetcher.is_at_end()
                parts = [] if at_end else self._fetcher.collect(limit)
            except errors.UnknownTopicOrPartitionError:
                if not self._drop_deleted():
                    raise
                continue
            now = self._clock.monotonic_ms()
            if parts:
                count = sum(map(len, parts))
                assert 0 < count <= limit, count
                self._metrics.count("records-consumed", count)
                self._version = version
                return parts
            if self._look():
                continue
            self._check_woken()
            if now >= deadline:
                self._version = version
                return []
            is_read = False
            if version is None:
                # Read before the fetch: if the fetch is empty, any later write changes the version.
                version = self._broker.ask(DataVersion())
            else:
                until = deadline if come_back is None else min(deadline, come_back)
                version = self._broker.wait_for_change(version, until, lambda: self._woken)

    def wakeup(self) -> None:
        """Make the waiting poll raise WakeupError, or else the next poll without records.

        The only method that is safe to call from another thread or a signal handler.
        """
        self._woken = True

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        """Iterate over the records as they arrive, endlessly; close the consumer to stop."""
        while not self._closed:
            yield from self.poll(timeout_ms=1_000)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` would return."""
        cursor = self._cursor(partition)
        if cursor.position is None:
            committed = {} if self._group_id is None else self.committed([partition])
            self._fetcher.begin(partition, committed.get(partition))
        assert cursor.position is not None
        return cursor.position

    def position_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all positions, for `commit` or `send_offsets_to_transaction`."""
        return {tp: OffsetAndMetadata(self.position(tp)) for tp in sorted(self._cursors)}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. Raises InvalidRequestError if the offset is negative."""
        if not isinstance(offset, int) or offset < 0:
            raise errors.InvalidRequestError(
                f"offset: got {offset!r}, expected a whole number, 0 or more"
            )
        self._cursor(partition).seek(offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log start offset of the partitions, by default of all assigned ones."""
        for tp in list(partitions) or list(self._cursors):
            self._cursor(tp).seek(self._fetcher.beginning(tp))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the end of the partitions (read_committed: the LSO), by default of all assigned
        ones."""
        for tp in list(partitions) or list(self._cursors):
            self._cursor(tp).seek(self._fetcher.end(tp))

    # -- offsets --------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """Commit offsets for the group, by default all positions. They are durable when this returns.

        Raises IllegalGenerationError, UnknownMemberIdError and RebalanceInProgressError when the group has
        rebalanced without this consumer (the next poll rejoins), FencedInstanceIdError, and
        OffsetOutOfRangeError when a topic has been deleted and recreated since its records were read.
        """
        self._check_open()
        if offsets is None:
            offsets = self._fetcher.positions()
        member_of = None if self._subscription is None else self._membership
        if offsets and member_of is not None and member_of.awaits_assignment:
            raise errors.RebalanceInProgressError(
                f"group {self._group_id!r}: this consumer has joined a new generation and has no "
                "assignment yet; nothing was written: poll and commit again"
            )
        if not offsets:
            return
        try:
            self._broker.ask(OffsetCommit(group=self.group_metadata(), offsets=offsets))
        except (errors.FencedInstanceIdError, *MEMBERSHIP_ERRORS) as error:
            if self._membership is not None:
                self._membership.handle_error(error)
            raise

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are absent.

        Under read_committed, waits while an open transaction holds offsets of these partitions (KIP-447).
        """
        self._check_open()
        tps = check_topic_partitions(partitions)
        deadline = self._clock.monotonic_ms() + self._settings.default_api_timeout_ms
        version = self._broker.ask(DataVersion())
        while True:
            answers, is_over = self._committed(tps), self._clock.monotonic_ms() >= deadline
            for error in answers.values():
                may_end = isinstance(error, errors.UnstableOffsetCommitError) and not is_over
                if isinstance(error, errors.ApiError) and not may_end:
                    raise error
            offsets = {
                tp: answer
                for tp, answer in answers.items()
                if not isinstance(answer, errors.ApiError)
            }
            if len(offsets) == len(answers):
                return offsets
            self._check_woken()
            version = self._broker.wait_for_change(version, deadline, lambda: self._woken)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return {tp: self._fetcher.beginning(tp) for tp in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets: under read_committed the last stable offset, otherwise the log end
        offset."""
        return {tp: self._fetcher.end(tp) for tp in partitions}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (ms); None if there is none."""
        first: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise errors.InvalidRequestError(
                    f"{tp}: got time {timestamp}, expected 0 ms or more"
                )
            level = self._settings.isolation_level
            answer = self._broker.ask(ListOffsets(tp, timestamp, isolation_level=level))
            first[tp] = answer if answer.offset >= 0 else None
        return first

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of the topic. Raises UnknownTopicOrPartitionError."""
        return self._broker.ask(Topic(topic)).partitions

    def lag(self) -> dict[TopicPartition, Lag]:
        """Return each partition's lag: the records that this consumer could read now, those held back by
        open transactions, and the offsets that reading will skip."""
        level = self._settings.isolation_level
        return {
            tp: self._broker.ask(requests.Lag(tp, self.position(tp), isolation_level=level))
            for tp in sorted(self._cursors)
        }

    def metrics(self) -> dict[str, float]:
        """Return counters, averages and rates under Kafka's names; `records-lag-max` is as of the last
        fetches."""
        return {**self._metrics.snapshot(), "records-lag-max": self._fetcher.longest_lag()}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group, for `send_offsets_to_transaction`.

        The identity of an ended generation is still returned, and the broker refuses it (KIP-447).
        """
        if self._group_id is None:
            raise errors.InvalidGroupIdError(
                "the consumer has no group_id; give it one to commit offsets"
            )
        instance_id = self._settings.group_instance_id
        member = ConsumerGroupMetadata(self._group_id, group_instance_id=instance_id)
        if self._membership is not None and self._subscription is not None:
            member = self._membership.metadata
        return dataclasses.replace(member, topic_ids=self._fetcher.topic_ids())

    def enforce_rebalance(self) -> None:
        """Trigger a rebalance of the group at the next poll."""
        self._check_open()
        if self._membership is None or self._subscription is None:
            raise errors.IllegalStateError("enforce_rebalance needs a group_id and a subscription")
        self._membership.rejoin()

    def close(self) -> None:
        """Commit if enable_auto_commit is set, revoke the partitions and leave the group; idempotent. A
        static member (group_instance_id) does not leave: it may return before its session ends."""
        if not self._closed:
            try:
                self.unsubscribe()
                self._closed = True
            except Exception as error:
                # After MemoryError or a signal the program may call `close` again.
                self._closed = not (isinstance(error, MemoryError) or is_of_a_signal(error))
                raise

    # -- small steps ----------------------------------------------------------------------------

    def _committed(
        self, tps: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | errors.ApiError]:
        if self._group_id is None:
            return {}
        stable = self._settings.isolation_level == "read_committed"
        return self._broker.committed(self._group_id, tps, require_stable=stable)

    def _commit_beginning(self, partition: TopicPartition, offset: int) -> None:
        if self._membership is not None:
            with contextlib.suppress(*MEMBERSHIP_ERRORS):
                self.commit({partition: OffsetAndMetadata(offset)})

    def _advance(self) -> int | None:
        """Advance the membership, if any. Returns the time of the next call."""
        if self._membership is None or self._subscription is None:
            return None
        return self._membership.advance(self._topics)

    def _see(self) -> Seen:
        """The topics that the subscription and the group's other members may match, and the group."""
        assigned = () if self._membership is None else self._membership.counted()
        names = None
        if not isinstance(self._subscription, re.Pattern):
            names = {*(self._subscription or ()), *assigned}
        return self._broker.ask(TopicsAndGroup(names, self._group_id))

    def _look(self) -> bool:
        """Update the topics that the subscription matches. Returns whether these, their partitions or the
        group have changed."""
        if self._subscription is None:
            return False
        counts, generation = self._see()
        has_changed = self._match(counts)
        return (self._membership is not None and self._membership.look(generation)) or has_changed

    def _match(self, counts: Mapping[str, int]) -> bool:
        subscription = self._subscription
        if subscription is None:
            return False
        self._next_look_ms = self._clock.monotonic_ms() + self._settings.metadata_max_age_ms
        before = self._topics
        if isinstance(subscription, re.Pattern):
            self._topics = tuple(topic for topic in counts if subscription.fullmatch(topic))
        else:
            self._topics = subscription
        if self._membership is not None:
            return self._membership.check_partitions(counts) or before != self._topics
        if before == self._topics and counts == self._counts:
            return False
        tps = {TopicPartition(t, p) for t in self._topics for p in range(counts.get(t, 0))}
        has_changed = self._partitions.replace(tps)
        self._counts = counts
        return has_changed

    def _drop_deleted(self) -> bool:
        """Drop partitions of deleted topics, if they came from a subscription."""
        if self._subscription is None:
            return False
        counts = self._see().counts
        gone = [tp for tp in self._cursors if tp.partition >= counts.get(tp.topic, 0)]
        self._counts = None
        if gone:
            self._partitions.revoke(gone, lost=True)
        return bool(gone)

    def _auto_commit(self) -> None:
        """Commit all positions if enable_auto_commit is set. Does nothing after the end of the
        generation."""
        if not self._settings.enable_auto_commit or self._group_id is None:
            return
        now = self._clock.monotonic_ms()
        self._next_auto_commit_ms = now + self._settings.auto_commit_interval_ms
        with contextlib.suppress(*MEMBERSHIP_ERRORS):
            try:
                self.commit()
            except (
                errors.OffsetOutOfRangeError
            ):  # A topic was recreated: commit the other topics' positions.
                self.commit(self._fetcher.positions(without=self._fetcher.stale()))

    def _cursor(self, partition: TopicPartition) -> Cursor:
        self._check_open()
        try:
            return self._cursors[partition]
        except (KeyError, TypeError):
            raise errors.IllegalStateError(
                f"{partition!r} is not assigned to this consumer; subscribe or assign it first"
            ) from None

    def _check_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise errors.WakeupError("wakeup() was called")

    def _check_open(self) -> None:
        if self._closed:
            raise errors.IllegalStateError("the consumer has been closed")
