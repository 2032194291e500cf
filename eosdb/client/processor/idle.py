"""Decides when a processor is idle: when its whole group, not only its own partitions, has read everything.

A hanging member keeps its partitions until its session ends, and an open transaction holds its offsets
until it ends. A processor that returned earlier would leave their records unread.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.consumer.settings import ConsumerConfig, ConsumerSettings
from eosdb.client.transport import Transport
from eosdb.errors import (
    ApiError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice
from eosdb.model.protocol.consumer_protocol import decode_assignment
from eosdb.model.requests import DataVersion, DescribeGroup, Lag, ListOffsets, TopicPartitions
from eosdb.model.values import EARLIEST, OffsetAndMetadata, TopicPartition

LOOK_EVERY_MS: Final = 200
_TELL_AFTER_MS: Final = 1_000
"""The time without progress of the group after which a warning is logged, in ms."""
_TRANSACTION: Final = "a transaction with offsets of the group, which has not ended,"

Unread = dict[TopicPartition, int]
Committed = dict[TopicPartition, OffsetAndMetadata | ApiError]


# decisions/0040: a group is idle if its lag is 0, counting the partitions of all its members.
class GroupIdleness:
    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        group_id: str,
        topics: tuple[str, ...] | re.Pattern[str],
        config: ConsumerConfig,
        read_whole: Collection[str] = (),
    ) -> None:
        self._settings = ConsumerSettings(**config)
        self._requests = ConsumerRequests(transport, clock, self._settings, Metrics(clock, ()))
        self._clock = clock
        self._group_id = group_id
        self._topics = topics
        self._read_whole = read_whole
        self._version: int | None = None
        self._looked_ms = self._since_ms = 0
        self._unread: Unread = {}
        self._pending: set[TopicPartition] = set()
        self._told: set[object] = set()

    def is_idle(self) -> bool:
        """Whether the group's lag is 0 in all partitions and no open transaction holds offsets of the
        group. Checks at most every LOOK_EVERY_MS, and returns False in between."""
        now = self._clock.monotonic_ms()
        if self._version is not None and now - self._looked_ms < LOOK_EVERY_MS:
            return False
        version = self._requests.ask(DataVersion())
        if version != self._version:
            try:
                unread = self._look()
            except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
                self._tell(("denied",), catalog.GROUP_LAG_DENIED, error=error)
                unread = {}
            has_advanced = any(unread.get(tp, 0) < count for tp, count in self._unread.items())
            if has_advanced or not self._unread:
                self._since_ms = now
            self._version, self._looked_ms, self._unread = version, now, unread
        if not self._unread:
            self._version = None
            return True
        if now - self._since_ms >= _TELL_AFTER_MS:
            self._tell_who_holds()
        return False

    def _look(self) -> Unread:
        topics = self._topics
        if isinstance(topics, re.Pattern):
            counts = self._requests.ask(TopicPartitions())
            topics = tuple(filter(topics.fullmatch, counts))
        else:
            counts = self._requests.ask(TopicPartitions(topics))
        tps = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(counts.get(topic, 0))
        ]
        if not tps:
            return {}
        stable = self._committed(tps, require_stable=True)
        self._pending = {
            tp for tp, answer in stable.items() if isinstance(answer, UnstableOffsetCommitError)
        }
        answers = self._committed(tps, require_stable=False) if self._pending else stable
        committed = {tp: at for tp, at in answers.items() if isinstance(at, OffsetAndMetadata)}
        # A pending offset counts as a lag of at least 1, even if a reset would skip the record.
        lags = {tp: max(self._lag(tp, committed.get(tp)), tp in self._pending) for tp in tps}
        return {tp: lag for tp, lag in lags.items() if lag}

    def _committed(self, tps: list[TopicPartition], *, require_stable: bool) -> Committed:
        """The group's committed offsets. A partition whose offset is pending has the error instead."""
        committed = self._requests.committed(self._group_id, tps, require_stable=require_stable)
        for answer in committed.values():
            if isinstance(answer, TopicAuthorizationFailedError):
                raise answer
        return committed

    def _lag(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> int:
        """Count the unread records. Without an offset, or with one below the log start, records count
        only with auto_offset_reset="earliest" and in the processor's own topics."""
        reads_all = self._settings.auto_offset_reset == "earliest" or tp.topic in self._read_whole
        if committed is None and not reads_all:
            return 0
        offset = 0 if committed is None else committed.offset
        try:
            level = self._settings.isolation_level
            lag = self._requests.ask(Lag(tp, offset, isolation_level=level))
            if lag and not reads_all:
                begins = self._requests.ask(ListOffsets(tp, EARLIEST))
                if offset < begins.offset:
                    return 0
        except UnknownTopicOrPartitionError:
            return 0  # The topic was deleted meanwhile.
        return lag

    # -- the warning ----------------------------------------------------------------------------

    def _tell_who_holds(self) -> None:
        holders = self._holders()
        held: dict[str, list[TopicPartition]] = {}
        for tp in sorted(self._unread):
            holder = f"member {holders[tp]!r}" if tp in holders else "nobody yet"
            held.setdefault(_TRANSACTION if tp in self._pending else holder, []).append(tp)
        parts = [
            f"{holder} holds "
            f"{sum(self._unread[tp] for tp in tps)} unread records in {', '.join(map(str, tps))}"
            for holder, tps in held.items()
        ]
        situation = tuple((holder, tuple(tps)) for holder, tps in held.items())
        self._tell(situation, catalog.OTHERS_STAND_STILL, holders="; ".join(parts))

    def _holders(self) -> dict[TopicPartition, str]:
        try:
            members = self._requests.ask(DescribeGroup(self._group_id)).members
        except (GroupIdNotFoundError, GroupAuthorizationFailedError):
            return {}
        holders = {}
        for member in members:
            try:
                assigned = decode_assignment(member.assignment)
            except ValueError:
                continue  # The member has no assignment yet, or is not a consumer.
            holders.update(dict.fromkeys(assigned, member.member_id))
        return holders

    def _tell(self, situation: object, notice: Notice, **values: Any) -> None:
        if situation not in self._told:
            self._told.add(situation)
            notice.say(group_id=self._group_id, **values)
