"""Membership in a consumer group: join, sync, heartbeat, and the leader's assignment.

It follows Kafka's classic protocol (AbstractCoordinator, ConsumerCoordinator; decisions/0078). The polling
thread takes and gives up partitions, and no step waits: `advance` goes as far as the group allows and
returns when to call it again. With the system clock a separate thread sends heartbeats, so that a slow
record does not end the session. With any other clock, polls send them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from eosdb.client.background import Background
from eosdb.client.consumer.assignors import ASSIGNORS, MemberSubscription
from eosdb.client.consumer.fetcher import AssignedPartitions
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.client.transport import Presence, presence
from eosdb.errors import (
    DatabaseClosedError,
    EosdbError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from eosdb.model.clock import SystemClock
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Untold
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    TopicPartitions,
)
from eosdb.model.values import (
    ConsumerGroupMetadata,
    JoinGroupMember,
    JoinGroupResult,
    TopicPartition,
)

LOOK_EVERY_MS: Final = 250
"""The time between two checks for dead members, in ms."""
NEVER_MS: Final = 2**62
MEMBERSHIP_ERRORS: Final = (IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)
"""The errors after which a member must rejoin."""
_FIRST_BACKOFF_MS: Final = 5
_LONGEST_BACKOFF_MS: Final = 100


class Phase(Enum):
    """The state of a member (Kafka: MemberState)."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Membership:
    """One consumer's membership in its group."""

    def __init__(
        self,
        requests: ConsumerRequests,
        group_id: str,
        partitions: AssignedPartitions,
    ) -> None:
        self._requests = requests
        self._clock = requests.clock
        self._settings = settings = requests.settings
        self._partitions = partitions
        self._assignors = [ASSIGNORS[name] for name in settings.assignors]
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._lock = threading.RLock()
        self._background: Background | None = None
        self._phase = Phase.UNJOINED
        self._held = ConsumerGroupMetadata(group_id, group_instance_id=settings.group_instance_id)
        """The newest generation of this member, kept after its end so that a late commit is refused."""
        self._synced = self._held
        """The newest generation with a known assignment."""
        self._member_id = ""
        self._presence: Presence | None = None
        """A presence begins and ends with the membership, under the lock."""
        self._next_presence_look_ms = 0
        self._generation_id = -1
        """The generation; -1 for no membership."""
        self._must_rejoin = self._has_lost = self._is_prepared = False
        self._error: EosdbError | None = None
        self._topics: tuple[str, ...] = ()
        self._counts: Mapping[str, int] | None = None
        """The leader's partition counts, on which its assignment is based; None for other members."""
        self._assignments: dict[str, bytes] = {}
        self._assigned_last = Subscription(())
        """The last assignment: a sticky eager member reports it although it revokes all partitions before
        joining."""
        self._next_heartbeat_ms = self._last_poll_ms = self._ask_again_ms = 0
        self._backoff_ms = _FIRST_BACKOFF_MS
        self._untold = Untold()
        """Notices collected under the lock and logged after its release, since heartbeats need the lock."""
        self._logged_assignment: frozenset[TopicPartition] = frozenset()
        self.rebalances = 0
        """The number of generations that this member has joined."""

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The identity for commits: the generation that assigned this member its partitions, even after
        the member has lost them."""
        # A member that joins a new generation still reads the partitions of the last synced one.
        return self._synced

    @property
    def awaits_assignment(self) -> bool:
        """Whether this member has joined a generation but not received its assignment."""
        return self._synced is not self._held

    def advance(self, topics: tuple[str, ...]) -> int:
        """Go as far as possible without waiting. Returns when (monotonic ms) to call again. Raises
        FencedInstanceIdError, InconsistentGroupProtocolError, InvalidSessionTimeoutError and
        GroupAuthorizationFailedError; other errors of the group are handled."""
        self._begin_poll(topics)
        while True:
            if self._phase is Phase.STABLE and not self._must_rejoin:
                heartbeat_ms = self._next_heartbeat_ms
                has_thread = self._background is not None
                return heartbeat_ms if has_thread else min(heartbeat_ms, self._presence_due_ms)
            self._prepare()
            if self._clock.monotonic_ms() < self._ask_again_ms:
                return self._ask_again_ms
            self._step()

    def look(self, generation: int | None) -> bool:
        """Whether the group, now of this generation (`Seen`), has news for this member; then the next
        `advance` sends a heartbeat. Looking is cheap, so a waiting member notices a rebalance before its
        next heartbeat. If the generation is unknown, that heartbeat raises the error."""
        with self._lock:
            is_member = self._phase is Phase.STABLE and not self._must_rejoin
            if not is_member or generation in (None, self._generation_id):
                return False
            self._next_heartbeat_ms = self._clock.monotonic_ms()
            return True

    def counted(self) -> Collection[str]:
        """The topics whose partitions this leader of the group has assigned."""
        return self._counts or ()

    def check_partitions(self, counts: Mapping[str, int]) -> bool:
        """Whether topics or partitions have changed, so that the assignment must be computed again; the
        next `advance` requests it."""
        with self._lock:
            if self._phase is not Phase.STABLE or self._must_rejoin or self._counts is None:
                return False
            self._must_rejoin = any(
                counts.get(topic, 0) != count for topic, count in self._counts.items()
            )
            return self._must_rejoin

    def rejoin(self) -> None:
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

    # -- a poll ---------------------------------------------------------------------------------

    def _begin_poll(self, topics: tuple[str, ...]) -> None:
        """Do due work, and take over the new subscription. Raises the error that ended the membership."""
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
            self._look_at_presences(now)

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
            owner_lock = self._owner_lock()
        settings = self._settings
        joined = self._requests.ask(
            JoinGroup(
                self._held.group_id,
                member_id=self._member_id,
                group_instance_id=settings.group_instance_id,
                client_id=settings.client_id or "",
                protocols=[
                    (assignor.name, replace(told, user_data=assignor.user_data(held)).encode())
                    for assignor in self._assignors
                ],
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.max_poll_interval_ms,
                owner_lock=owner_lock,
            )
        )
        with self._lock:
            self._member_id = joined.member_id
            if not joined.is_complete:
                self._ask_later()
                return
            assert joined.member_id, joined
            assert joined.generation_id >= 0, joined
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
        if self._background is None and isinstance(self._clock, SystemClock):
            self._background = Background(
                f"eosdb-heartbeat-{self._held.group_id}", self._background_step
            )

    def _assign(self, joined: JoinGroupResult) -> dict[str, bytes]:
        assert joined.protocol_name is not None
        assignor = ASSIGNORS[joined.protocol_name]
        members = [
            MemberSubscription(m.member_id, m.group_instance_id, assignor.claims(_subscription(m)))
            for m in joined.members
        ]
        topics = {topic for member in members for topic in member.subscription.topics}
        existing = self._requests.ask(TopicPartitions(topics))
        self._counts = {topic: existing.get(topic, 0) for topic in sorted(topics)}
        present = {topic: count for topic, count in self._counts.items() if count}
        assigned = assignor.assign(members, present)
        assert assigned.keys() == {member.member_id for member in members}, assigned
        assert sum(map(len, assigned.values())) <= sum(present.values()), assigned
        return {member_id: encode_assignment(tps) for member_id, tps in assigned.items()}

    def _sync(self) -> None:
        synced = self._requests.ask(
            SyncGroup(
                self._held.group_id,
                self._held.generation_id,
                self._held.member_id,
                group_instance_id=self._held.group_instance_id,
                assignments=self._assignments,
            )
        )
        with self._lock:
            if self._phase is not Phase.SYNCING:
                return
            if not synced.is_complete:
                self._ask_later()
                return
            assigned = set(decode_assignment(synced.assignment))
            if not self._assignments:
                self._counts = None
            elif assigned != set(decode_assignment(self._assignments[self._held.member_id])):
                # A static leader that has started again gets what it had (KIP-814), without newer topics.
                self._must_rejoin = True
            assert self._generation_id == self._held.generation_id, self._held
            self._phase, self._synced = Phase.STABLE, self._held
            self._beat_later()
            self._is_prepared = False
            self.rebalances += 1
            self._ask_now()
        self._assigned_last = Subscription((), tuple(sorted(assigned)), self._held.generation_id)
        self._apply_assignment(assigned)

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
        assert _FIRST_BACKOFF_MS <= self._backoff_ms <= _LONGEST_BACKOFF_MS, self._backoff_ms
        self._ask_again_ms = self._clock.monotonic_ms() + self._backoff_ms
        self._backoff_ms = min(self._backoff_ms * 2, _LONGEST_BACKOFF_MS)

    def _ask_now(self) -> None:
        self._ask_again_ms, self._backoff_ms = 0, _FIRST_BACKOFF_MS

    def _owner_lock(self) -> int:
        """Return the number of the presence to join with, 0 for none. A new membership gets a new
        presence; a membership that began without a presence gets none."""
        # KIP-345: a static member may be away until its session ends, so no lock shows its presence.
        is_static = self._settings.group_instance_id is not None
        if self._presence is None and not self._member_id and not is_static:
            self._presence = presence(self._requests.transport)
        return 0 if self._presence is None else self._presence.number

    def _look_at_presences(self, now_ms: int) -> None:
        """Remove members of dead processes, at most every LOOK_EVERY_MS."""
        held = self._presence
        if held is None or now_ms < self._next_presence_look_ms:
            return
        self._next_presence_look_ms = now_ms + LOOK_EVERY_MS
        with contextlib.suppress(EosdbError):  # A later check repeats what fails here.
            held.look()

    @property
    def _presence_due_ms(self) -> int:
        return NEVER_MS if self._presence is None else self._next_presence_look_ms

    # -- heartbeats, under the lock -------------------------------------------------------------

    def _beat_later(self) -> None:
        """Postpone the next heartbeat: another request has just renewed the session."""
        self._next_heartbeat_ms = self._clock.monotonic_ms() + self._settings.heartbeat_interval_ms

    def _beat_when_due(self, now_ms: int) -> None:
        """Send a heartbeat if it is due. A lost response is ignored: the next heartbeat follows."""
        is_member = self._generation_id >= 0 and self._error is None
        if not is_member or now_ms < self._next_heartbeat_ms:
            return
        self._next_heartbeat_ms = now_ms + self._settings.heartbeat_interval_ms
        try:
            self._requests.ask(
                Heartbeat(
                    self._held.group_id,
                    self._held.generation_id,
                    self._held.member_id,
                    group_instance_id=self._held.group_instance_id,
                )
            )
        except EosdbError as error:
            self._handle(error)

    def _handle(self, error: EosdbError) -> None:
        if isinstance(error, UnknownMemberIdError):
            self._note_loss(error)
            self._forget(keep_member_id=False)
        elif isinstance(error, IllegalGenerationError):
            # A member that is joining has the old generation until the response to JoinGroup arrives.
            if self._phase is not Phase.JOINING:
                self._note_loss(error)
                self._forget(keep_member_id=True)
        elif isinstance(error, RebalanceInProgressError):
            self._must_rejoin |= self._phase in (Phase.STABLE, Phase.SYNCING)
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
        """End the membership: the generation ended without this member, and its partitions may have other
        owners already."""
        self._generation_id = -1
        self._has_lost = True
        self._phase, self._is_prepared, self._counts = Phase.UNJOINED, False, None
        self._ask_now()
        if not keep_member_id:
            self._member_id = ""
            ended, self._presence = self._presence, None
            if ended is not None:
                ended.end()

    def _send_leave(self) -> None:
        """Leave the group. If the request is lost, the session ends later."""
        if self._member_id and self._settings.group_instance_id is None:
            with contextlib.suppress(EosdbError):
                self._requests.ask(LeaveGroup(self._held.group_id, self._member_id))

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

    def _background_step(self) -> int | None:
        # The lock must be free: `look` may wait for the polling thread, which needs the lock.
        self._look_at_presences(self._clock.monotonic_ms())
        try:
            with self._lock:
                if self._error is not None:
                    return None
                now = self._clock.monotonic_ms()
                self._leave_when_idle(now)
                self._beat_when_due(now)
                if self._generation_id < 0:
                    return 100
                return max(min(self._next_heartbeat_ms, self._presence_due_ms) - now, 1)
        finally:
            self._untold.tell()


def _names(tps: Collection[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]


def _subscription(member: JoinGroupMember) -> Subscription:
    try:
        return decode_subscription(member.metadata)
    except ValueError as error:
        raise InconsistentGroupProtocolError(
            f"member {member.member_id!r} is in this group and does not state its subscription "
            f"({error}); use a separate group for other programs"
        ) from error
