"""Membership in a consumer group: what a member of either protocol does.

`ClassicMembership` joins, syncs and lets the leader assign; `ConsumerMembership` only heartbeats, and the
coordinator assigns (KIP-848). In both, the thread that polls takes and gives up partitions, and no step
waits: `advance` goes as far as the group allows and returns when to call it again. With the system clock a
separate thread sends heartbeats, so that a slow record does not end the session; with any other clock,
polls send them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from eosdb.client.background import Background
from eosdb.client.consumer.attendance import Attendance
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.consumer.settings import ConsumerSettings
from eosdb.errors import (
    DatabaseClosedError,
    EosdbError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold
from eosdb.model.values import ConsumerGroupMetadata, TopicPartition

MEMBERSHIP_ERRORS: Final = (
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
"""The errors after which a member must rejoin, or learn its epoch."""


class Partitions(Protocol):
    """The partitions of a member, which the membership assigns and revokes."""

    def assigned(self) -> Collection[TopicPartition]: ...

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions; called after every rebalance, even if there are none to add."""

    def revoke(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Remove the partitions. If `lost`, other members may own them already."""


class Membership(ABC):
    """One consumer's membership in its group."""

    def __init__(
        self,
        requests: ConsumerRequests,
        clock: Clock,
        settings: ConsumerSettings,
        group_id: str,
        partitions: Partitions,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._settings = settings
        self._partitions = partitions
        self._lock = threading.RLock()
        self._background: Background | None = None
        self._held = ConsumerGroupMetadata(group_id, group_instance_id=settings.group_instance_id)
        """The newest generation of this member, kept after it has ended so that a late commit is
        refused."""
        self._member_id = ""
        self._attendance = Attendance(
            requests.presence, is_static=settings.group_instance_id is not None
        )
        self._generation_id = -1
        """The generation, or the member epoch; -1 while this consumer is no member."""
        self._must_rejoin = self._has_lost = False
        self._error: EosdbError | None = None
        self._topics: tuple[str, ...] = ()
        self._next_heartbeat_ms = self._last_poll_ms = 0
        self._untold = Untold()
        """Notices collected under the lock and logged after its release, since heartbeats need the lock."""
        self._logged_assignment: frozenset[TopicPartition] = frozenset()
        """The assignment in the newest log line."""
        self.rebalances = 0
        """The number of generations that this member has joined."""

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The identity to commit with: of the generation in which this member was given what it has, also
        after that was lost."""
        return self._held

    @property
    def awaits_assignment(self) -> bool:
        """Whether this member has joined a generation whose assignment it does not know yet."""
        return False

    @abstractmethod
    def advance(self, topics: tuple[str, ...]) -> int:
        """Go as far as possible without waiting. Returns when (monotonic ms) to call again.

        Raises FencedInstanceIdError, InconsistentGroupProtocolError, InvalidSessionTimeoutError,
        GroupAuthorizationFailedError, and for the consumer protocol also GroupIdNotFoundError,
        GroupMaxSizeReachedError and UnreleasedInstanceIdError; other errors of the group are handled.
        """

    @abstractmethod
    def look(self) -> bool:
        """Whether the group has something new for this member; if so, the next `advance` sends a heartbeat.

        Reading is cheap, so a waiting member notices a rebalance at once instead of at its next heartbeat.
        """

    @abstractmethod
    def check_partitions(self, counts: Mapping[str, int]) -> bool:
        """Whether the assignment must be computed again because topics or partitions have changed; then the
        next `advance` asks for it."""

    def rejoin(self) -> None:
        """Request a rebalance at the next `advance`."""
        with self._lock:
            self._must_rejoin = True

    def handle_error(self, error: EosdbError) -> None:
        """Handle the error of a failed commit, which may concern the membership."""
        with self._lock:
            self._handle(error)
        self._untold.tell()

    def leave(self) -> None:
        """Leave the group. A static member (KIP-345) may come back before its session ends."""
        if (background := self._background) is not None:
            background.stop()
            self._background = None
        with self._lock:
            self._send_leave()
            self._forget(keep_member_id=False)
            self._has_lost = False
            self._topics = ()

    # -- steps that both protocols have ---------------------------------------------------------

    def _begin_poll(self, topics: tuple[str, ...]) -> None:
        """Do what is due, and take the new subscription. Raises the error that ended the membership."""
        now = self._clock.monotonic_ms()
        try:
            with self._lock:
                self._leave_when_idle(now)
                self._last_poll_ms = now
                self._beat_when_due(now)
                if self._error is not None:
                    raise self._error
                if topics != self._topics:
                    self._topics, self._must_rejoin = topics, True
        finally:
            self._untold.tell()
        if self._background is None:
            self._attendance.look(now)

    def _tell_of_generation(self, assigned: Collection[TopicPartition]) -> None:
        before, now = self._logged_assignment, frozenset(assigned)
        self._logged_assignment = now
        reads, gained, lost = _names(now), _names(now - before), _names(before - now)
        self._untold.add(
            catalog.REBALANCED,
            group_id=self._held.group_id,
            member_id=self._held.member_id,
            generation_id=self._held.generation_id,
            gained=gained,
            lost=lost,
            assigned_names=", ".join(reads) or "nothing",
            gained_names=", ".join(gained) or "nothing",
            lost_names=", ".join(lost) or "nothing",
        )

    def _come_back(self) -> int:
        """When (monotonic ms) a waiting poll must call `advance` again."""
        if self._background is not None:
            return self._next_heartbeat_ms
        return min(self._next_heartbeat_ms, self._attendance.next_look_ms)

    # -- staying alive, under the lock ----------------------------------------------------------

    @abstractmethod
    def _beat_when_due(self, now_ms: int) -> None:
        """Send a heartbeat if it is due. A lost response is ignored: the next heartbeat follows."""

    @abstractmethod
    def _send_leave(self) -> None:
        """Tell the group that this member leaves; if that is lost, its session ends later."""

    def _handle(self, error: EosdbError) -> None:
        if isinstance(error, UnknownMemberIdError):
            self._note_loss(error)
            self._forget(keep_member_id=False)
        elif isinstance(error, (DatabaseClosedError, FencedInstanceIdError)):
            if self._error is None and isinstance(error, FencedInstanceIdError):
                self._untold.add(
                    catalog.MEMBER_FENCED,
                    group_id=self._held.group_id,
                    member_id=self._held.member_id,
                    group_instance_id=self._held.group_instance_id,
                )
            self._error = error

    def _note_loss(self, error: EosdbError) -> None:
        """Log that the group has rebalanced without this member, unless it was only joining."""
        if self._generation_id >= 0:
            self._logged_assignment = frozenset()
            self._untold.add(
                catalog.MEMBERSHIP_LOST,
                group_id=self._held.group_id,
                member_id=self._held.member_id,
                generation_id=self._held.generation_id,
                error=error,
            )

    def _forget(self, *, keep_member_id: bool) -> None:
        """Be no member: the generation ended without this one, and its partitions may have other owners
        already."""
        self._generation_id = -1
        self._has_lost = True
        if not keep_member_id:
            self._member_id = ""
            self._attendance.end()

    def _leave_when_idle(self, now_ms: int) -> None:
        """Leave the group if there was no poll for max_poll_interval_ms (KIP-62)."""
        if (
            self._generation_id >= 0
            and now_ms - self._last_poll_ms > self._settings.max_poll_interval_ms
        ):
            self._logged_assignment = frozenset()
            self._untold.add(
                catalog.POLLED_TOO_LATE,
                group_id=self._held.group_id,
                member_id=self._held.member_id,
                max_poll_interval_ms=self._settings.max_poll_interval_ms,
            )
            self._send_leave()
            self._forget(keep_member_id=self._settings.group_instance_id is not None)

    def _start_heartbeats(self) -> None:
        if self._background is None and isinstance(self._clock, SystemClock):
            self._background = Background(
                f"eosdb-heartbeat-{self._held.group_id}", self._background_step
            )

    def _background_step(self) -> int | None:
        # Without the lock: `look` may have to wait for a writer, which may be the thread that polls.
        self._attendance.look(self._clock.monotonic_ms())
        try:
            with self._lock:
                if self._error is not None:
                    return None
                now = self._clock.monotonic_ms()
                self._leave_when_idle(now)
                self._beat_when_due(now)
                if self._generation_id < 0:
                    return 100
                return max(min(self._next_heartbeat_ms, self._attendance.next_look_ms) - now, 1)
        finally:
            self._untold.tell()


def _names(tps: Collection[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
