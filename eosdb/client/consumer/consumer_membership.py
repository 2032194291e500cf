"""Membership in a group whose partitions the coordinator assigns (KIP-848).

A heartbeat does all: it joins, stays and leaves, says what the member owns, and is answered with what it
should own. The thread that polls then gives up what is not in the answer, says so with the next heartbeat,
and gets what others have given up. A heartbeat always says everything, so that it is answered with
everything: an answer may be lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from eosdb.client.consumer.membership import Membership, Partitions
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.consumer.settings import ConsumerSettings
from eosdb.errors import (
    ApiError,
    EosdbError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    StaleMemberEpochError,
)
from eosdb.model.clock import Clock
from eosdb.model.values import (
    AssignedTopic,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupMetadata,
    GroupState,
    MemberHeartbeat,
    TopicPartition,
)

_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2

Owned = Mapping[TopicPartition, UUID]
"""Partitions, with the ids of their topics: a topic that was deleted and made anew is another one."""


class Step(NamedTuple):
    """What a member does to come from what it owns to its assignment: it gives up before it adds."""

    given_up: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    owned: Owned
    """What it owns afterwards."""


def next_step(owned: Owned, assigned: Owned) -> Step:
    """The step from `owned` to `assigned`. While partitions are given up none are added: the coordinator
    gives the new ones when it knows."""
    kept = {tp: topic_id for tp, topic_id in owned.items() if assigned.get(tp) == topic_id}
    if len(kept) < len(owned):
        return Step(frozenset(owned.keys() - kept.keys()), frozenset(), kept)
    return Step(frozenset(), frozenset(assigned.keys() - kept.keys()), assigned)


def may_get_more(group: ConsumerGroupDescription, member_id: str) -> bool:
    """Whether the member's next heartbeat may give it partitions: some of its target are nobody's, or it is
    no member any more."""
    own = next((m for m in group.members if m.member_id == member_id), None)
    taken = {tp for m in group.members for tp in _flat(m.assignment)}
    return own is None or bool(_flat(own.target_assignment).keys() - taken)


class ConsumerMembership(Membership):
    """A membership whose partitions the coordinator assigns."""

    def __init__(
        self,
        requests: ConsumerRequests,
        clock: Clock,
        settings: ConsumerSettings,
        group_id: str,
        partitions: Partitions,
    ) -> None:
        super().__init__(requests, clock, settings, group_id, partitions)
        self._owned: Owned = {}
        """Changed by the thread that polls alone, which puts another value in its place."""
        self._assigned: Owned | None = None
        """The assignment of the newest answer, until the thread that polls has reached it."""
        self._counts: Mapping[str, int] = {}
        """The partition counts of all topics, as seen last."""
        self._seen: ConsumerGroupDescription | None = None
        """The group that `look` has last sent a heartbeat for."""
        self._has_joined = False
        """Whether an assignment of this membership has been applied, even an empty one."""
        self._join_again_ms = 0

    def advance(self, topics: tuple[str, ...]) -> int:
        self._begin_poll(topics)
        while True:
            with self._lock:
                # Before a join of the same lock: what was lost is not kept in the new membership.
                lost, self._has_lost = self._has_lost, False
                now = self._clock.monotonic_ms()
                if not lost and self._generation_id < 0:
                    if now < self._join_again_ms:
                        return self._join_again_ms
                    self._send()
                    if self._generation_id < 0:
                        self._join_again_ms = now + self._settings.retry_backoff_ms
                elif not lost and self._must_rejoin:
                    self._send()
                step = self._take_step()
            self._untold.tell()
            if lost:
                self._lose()
            elif step is not None:
                self._carry_out(step)
            elif self._generation_id >= 0 and not self._must_rejoin and not self._has_lost:
                self._start_heartbeats()
                return self._come_back()

    def look(self) -> bool:
        with self._lock:
            if self._generation_id < 0 or self._must_rejoin or self._assigned is not None:
                return False
            try:
                if not self._has_news():
                    return False
            except ApiError:
                return False  # Not allowed, or deleted: the heartbeats will report it.
            self._must_rejoin = True
            return True

    def _has_news(self) -> bool:
        listed = self._requests.describe_group(self._held.group_id)
        if listed.generation_id != self._generation_id:
            return True
        if listed.state == GroupState.STABLE.value:
            return False
        # Others are still giving up partitions: each change of theirs is worth one heartbeat at most.
        described = self._requests.describe_consumer_group(self._held.group_id)
        before, self._seen = self._seen, described
        return described != before and may_get_more(described, self._member_id)

    def check_partitions(self, counts: Mapping[str, int]) -> bool:
        with self._lock:
            before, self._counts = self._counts, counts
            if self._generation_id < 0:
                return False
            has_changed = any(counts.get(topic) != before.get(topic) for topic in self._topics)
            self._must_rejoin |= has_changed
            return has_changed

    def leave(self) -> None:
        super().leave()
        self._owned = {}

    # -- taking and giving up partitions, in the thread that polls -------------------------------

    def _lose(self) -> None:
        """Drop all partitions: others may own them already."""
        self._owned, self._has_joined = {}, False
        if owned := list(self._partitions.assigned()):
            self._partitions.revoke(owned, lost=True)

    def _take_step(self) -> Step | None:
        """The next step to the assignment of the newest answer, under the lock. What it adds is told as
        owned from now on, so that nobody else gets it before it has been given up."""
        assigned, self._assigned = self._assigned, None
        if assigned is None:
            return None
        step = next_step(self._owned, assigned)
        if not step.given_up:
            self._owned = step.owned
        return step

    def _carry_out(self, step: Step) -> None:
        if step.given_up:
            present = step.given_up & set(self._partitions.assigned())
            try:
                self._partitions.revoke(present, lost=False)
            finally:
                with self._lock:
                    self._owned, self._must_rejoin = step.owned, True
        elif step.added or not self._has_joined:
            self._has_joined = True
            self.rebalances += 1
            self._partitions.assign(step.added)
        else:
            return
        self._tell_of_generation(step.owned)
        self._untold.tell()

    # -- heartbeats, under the lock --------------------------------------------------------------

    def _beat_when_due(self, now_ms: int) -> None:
        if self._generation_id < 0 or self._error or now_ms < self._next_heartbeat_ms:
            return
        with contextlib.suppress(EosdbError):
            self._send()

    def _send(self) -> None:
        """Join, or send a heartbeat. Errors that end the membership are handled, others raised."""
        self._next_heartbeat_ms = self._clock.monotonic_ms() + self._settings.retry_backoff_ms
        joins = self._generation_id < 0
        beat = MemberHeartbeat(
            member_id=self._member_id,
            member_epoch=0 if joins else self._generation_id,
            group_instance_id=self._settings.group_instance_id,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            subscribed_topic_names=self._topics,
            topic_partitions={} if joins else _by_topic(self._owned),
            client_id=self._settings.client_id or "",
            owner_lock=self._attendance.begin(self._member_id),
        )
        try:
            answer = self._requests.consumer_group_heartbeat(self._held.group_id, beat)
        except EosdbError as error:
            self._handle(error)
            if self._error is not None or not self._has_lost:
                raise
        else:
            self._take(answer)

    def _take(self, answer: ConsumerGroupHeartbeat) -> None:
        self._must_rejoin = False
        self._member_id, self._generation_id = answer.member_id, answer.member_epoch
        self._held = ConsumerGroupMetadata(
            self._held.group_id,
            answer.member_epoch,
            answer.member_id,
            self._settings.group_instance_id,
        )
        if answer.assignment is not None:
            self._assigned = _flat(answer.assignment)
        self._next_heartbeat_ms = self._clock.monotonic_ms() + answer.heartbeat_interval_ms

    def _handle(self, error: EosdbError) -> None:
        is_member = self._generation_id >= 0
        if isinstance(error, StaleMemberEpochError):
            self._must_rejoin |= is_member  # The next heartbeat learns the epoch.
        elif isinstance(error, FencedMemberEpochError) or (
            isinstance(error, GroupIdNotFoundError) and is_member
        ):
            self._note_loss(error)
            self._send_leave()
            self._forget(keep_member_id=False)
        else:
            super()._handle(error)

    def _forget(self, *, keep_member_id: bool) -> None:
        """Be no member. Whoever joins again, also a static member, gets a new id."""
        super()._forget(keep_member_id=False)
        self._assigned = self._seen = None

    def _send_leave(self) -> None:
        if self._member_id:
            is_static = self._settings.group_instance_id is not None
            beat = MemberHeartbeat(
                member_id=self._member_id,
                member_epoch=_LEAVE_FOR_A_WHILE if is_static else _LEAVE,
                group_instance_id=self._settings.group_instance_id,
            )
            with contextlib.suppress(EosdbError):
                self._requests.consumer_group_heartbeat(self._held.group_id, beat)


def _flat(assignment: Collection[AssignedTopic]) -> Owned:
    return {
        TopicPartition(share.topic, number): share.topic_id
        for share in assignment
        for number in share.partitions
    }


def _by_topic(owned: Owned) -> dict[UUID, list[int]]:
    by_topic: dict[UUID, list[int]] = {}
    for tp, topic_id in sorted(owned.items()):
        by_topic.setdefault(topic_id, []).append(tp.partition)
    return by_topic
