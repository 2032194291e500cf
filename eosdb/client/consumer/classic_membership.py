"""Membership in a group of the classic protocol: join, sync, and detect other members that join or leave
(Kafka: AbstractCoordinator, ConsumerCoordinator)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from eosdb.client.consumer.assignors.assignors import ASSIGNORS
from eosdb.client.consumer.assignors.sticky import MemberSubscription
from eosdb.client.consumer.membership import MEMBERSHIP_ERRORS, Membership, Partitions
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.consumer.settings import ConsumerSettings
from eosdb.errors import (
    ApiError,
    EosdbError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
)
from eosdb.model.clock import Clock
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.values import (
    ConsumerGroupMetadata,
    GroupState,
    GroupType,
    JoinGroupMember,
    JoinGroupResult,
    TopicPartition,
)

_FIRST_BACKOFF_MS: Final = 5
_LONGEST_BACKOFF_MS: Final = 100


class Phase(Enum):
    """The state of a member (Kafka: MemberState)."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class ClassicMembership(Membership):
    """A membership whose partitions one of the members, the leader, assigns."""

    def __init__(
        self,
        requests: ConsumerRequests,
        clock: Clock,
        settings: ConsumerSettings,
        group_id: str,
        partitions: Partitions,
    ) -> None:
        super().__init__(requests, clock, settings, group_id, partitions)
        self._assignors = [ASSIGNORS[name] for name in settings.assignors]
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._phase = Phase.UNJOINED
        self._is_prepared = False
        self._synced = self._held
        """The newest generation whose assignment this member knows."""
        self._counts: Mapping[str, int] | None = None
        """If this member is the leader: the partition counts that it computed the assignment from."""
        self._assignments: dict[str, bytes] = {}
        self._assigned_last = Subscription(())
        """The last assignment, which a sticky eager member reports although it revokes all partitions
        before joining."""
        self._ask_again_ms = 0
        self._backoff_ms = _FIRST_BACKOFF_MS

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        # Between JoinGroup and SyncGroup another may have been given what this member still reads.
        return self._synced

    @property
    def awaits_assignment(self) -> bool:
        return self._synced is not self._held

    def advance(self, topics: tuple[str, ...]) -> int:
        self._begin_poll(topics)
        while True:
            if self._phase is Phase.STABLE and not self._must_rejoin:
                return self._come_back()
            self._prepare()
            if self._clock.monotonic_ms() < self._ask_again_ms:
                return self._ask_again_ms
            self._step()

    def look(self) -> bool:
        with self._lock:
            if self._phase is not Phase.STABLE or self._must_rejoin:
                return False
            try:
                group = self._requests.describe_group(self._held.group_id)
            except ApiError:
                return False  # Not allowed, or deleted: the heartbeats will report it.
            # Where the coordinator assigns, others may be on their way without concerning this member.
            is_settled = (
                group.state == GroupState.STABLE.value or group.group_type is GroupType.CONSUMER
            )
            if group.generation_id == self._generation_id and is_settled:
                return False
            self._next_heartbeat_ms = self._clock.monotonic_ms()
            return True

    def check_partitions(self, counts: Mapping[str, int]) -> bool:
        with self._lock:
            if self._phase is not Phase.STABLE or self._must_rejoin or self._counts is None:
                return False
            self._must_rejoin = any(
                counts.get(topic, 0) != count for topic, count in self._counts.items()
            )
            return self._must_rejoin

    # -- the steps of a rebalance ---------------------------------------------------------------

    def _prepare(self) -> None:
        """Revoke the partitions that other members may get; under the eager protocol, all of them."""
        if self._is_prepared:
            return
        with self._lock:
            self._is_prepared = True
            lost, self._has_lost = self._has_lost, False
        owned = self._partitions.assigned()
        if not lost and self._is_cooperative:
            owned = [tp for tp in owned if tp.topic not in self._topics]
        if owned:
            self._partitions.revoke(owned, lost=lost)

    def _step(self) -> None:
        """Send JoinGroup or SyncGroup; the broker may respond that it is too early."""
        try:
            if self._phase in (Phase.UNJOINED, Phase.STABLE) or self._must_rejoin:
                self._phase, self._must_rejoin = Phase.JOINING, False
            if self._phase is Phase.JOINING:
                self._join()
            else:
                self._sync()
        except (FencedInstanceIdError, *MEMBERSHIP_ERRORS) as error:
            with self._lock:
                self._handle(error)
            self._untold.tell()
            if self._error is not None:
                raise
            self._prepare()

    def _join(self) -> None:
        held = self._assigned_last
        if self._is_cooperative:
            owned = tuple(sorted(self._partitions.assigned()))
            held = Subscription(self._topics, owned, self._generation_id)
        told = held if self._is_cooperative else Subscription(self._topics)
        with self._lock:
            owner_lock = self._attendance.begin(self._member_id)
        joined = self._requests.join_group(
            self._held.group_id,
            self._member_id,
            [
                (assignor.name, replace(told, user_data=assignor.user_data(held)).encode())
                for assignor in self._assignors
            ],
            owner_lock,
        )
        with self._lock:
            self._member_id = joined.member_id
            if not joined.is_complete:
                self._ask_later()
                return
            self._generation_id = joined.generation_id
            self._held = ConsumerGroupMetadata(
                self._held.group_id,
                joined.generation_id,
                joined.member_id,
                self._settings.group_instance_id,
            )
            self._phase = Phase.SYNCING
            self._beat_later()
            self._ask_now()
        self._assignments = self._assign(joined) if joined.leader == joined.member_id else {}
        self._start_heartbeats()

    def _assign(self, joined: JoinGroupResult) -> dict[str, bytes]:
        """As the leader, compute the assignment."""
        assert joined.protocol_name is not None
        assignor = ASSIGNORS[joined.protocol_name]
        members = [
            MemberSubscription(m.member_id, m.group_instance_id, assignor.claims(_subscription(m)))
            for m in joined.members
        ]
        existing = self._requests.topic_partitions()
        topics = {topic for member in members for topic in member.subscription.topics}
        self._counts = {topic: existing.get(topic, 0) for topic in sorted(topics)}
        present = {topic: count for topic, count in self._counts.items() if count}
        assigned = assignor.assign(members, present)
        return {member_id: encode_assignment(tps) for member_id, tps in assigned.items()}

    def _sync(self) -> None:
        synced = self._requests.sync_group(self._held, self._assignments)
        with self._lock:
            if self._phase is not Phase.SYNCING:
                return
            if not synced.is_complete:
                self._ask_later()
                return
            if not self._assignments:
                self._counts = None
            self._phase, self._synced = Phase.STABLE, self._held
            self._beat_later()
            self._is_prepared = False
            self.rebalances += 1
            self._ask_now()
        assigned = decode_assignment(synced.assignment)
        self._assigned_last = Subscription((), assigned, self._held.generation_id)
        self._apply_assignment(set(assigned))

    def _apply_assignment(self, assigned: set[TopicPartition]) -> None:
        """Apply the assignment. A cooperative member that revokes partitions rejoins afterwards
        (KIP-429)."""
        owned = set(self._partitions.assigned())
        if given_up := owned - assigned:
            with self._lock:
                self._must_rejoin = True
            self._partitions.revoke(given_up, lost=False)
        self._partitions.assign(assigned - owned)
        self._tell_of_generation(assigned)
        self._untold.tell()

    def _ask_later(self) -> None:
        self._ask_again_ms = self._clock.monotonic_ms() + self._backoff_ms
        self._backoff_ms = min(self._backoff_ms * 2, _LONGEST_BACKOFF_MS)

    def _ask_now(self) -> None:
        self._ask_again_ms, self._backoff_ms = 0, _FIRST_BACKOFF_MS

    # -- staying alive, under the lock ----------------------------------------------------------

    def _beat_later(self) -> None:
        """Postpone the next heartbeat, because another request has just renewed the session."""
        self._next_heartbeat_ms = self._clock.monotonic_ms() + self._settings.heartbeat_interval_ms

    def _beat_when_due(self, now_ms: int) -> None:
        is_member = self._generation_id >= 0 and self._error is None
        if not is_member or now_ms < self._next_heartbeat_ms:
            return
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        try:
            self._requests.heartbeat(self._held)
        except EosdbError as error:
            self._handle(error)

    def _handle(self, error: EosdbError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self._must_rejoin |= self._phase in (Phase.STABLE, Phase.SYNCING)
        elif isinstance(error, IllegalGenerationError):
            # A joining member expects a newer generation, and gets it with the response to JoinGroup.
            if self._phase is not Phase.JOINING:
                self._note_loss(error)
                self._forget(keep_member_id=True)
        else:
            super()._handle(error)

    def _forget(self, *, keep_member_id: bool) -> None:
        super()._forget(keep_member_id=keep_member_id)
        self._phase, self._is_prepared, self._counts = Phase.UNJOINED, False, None
        self._ask_now()

    def _send_leave(self) -> None:
        if self._member_id and self._settings.group_instance_id is None:
            # If this request is lost, the group removes the member when its session ends.
            with contextlib.suppress(EosdbError):
                self._requests.leave_group(self._held.group_id, self._member_id)


def _subscription(member: JoinGroupMember) -> Subscription:
    try:
        return decode_subscription(member.metadata)
    except ValueError as error:
        raise InconsistentGroupProtocolError(
            f"member {member.member_id!r} is in this group and does not state its subscription "
            f"({error}); use a separate group for other programs"
        ) from error
