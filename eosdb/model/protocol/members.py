"""The member of a group: one value for both group protocols, in decisions, in events and in rows."""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

NO_DEADLINE: Final = -1
Partitions = frozenset[tuple[int, int]]
"""Topic number and partition number of each."""
NOTHING: Final[Partitions] = frozenset()


class MemberState(Enum):
    """The progress of a member of the new protocol towards its target assignment."""

    STABLE = "Stable"
    UNREVOKED_PARTITIONS = "UnrevokedPartitions"
    """The member has to give up partitions."""
    UNRELEASED_PARTITIONS = "UnreleasedPartitions"
    """Other members have to give up partitions of its target."""


class Assignor(NamedTuple):
    """An assignor that a member of the classic protocol supports, with its metadata for the leader."""

    name: str
    metadata: bytes


class Share(NamedTuple):
    """Partitions that a member has owned without a break since one of its epochs (decisions/0101)."""

    since_epoch: int
    partitions: Partitions


class Member(NamedTuple):
    """A member. A classic member of a group of the new protocol (KIP-848) has `protocols`."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    """The client's address, for members that connect over the wire."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    owner_lock: int = 0
    """The number of the lock that its process holds; 0 if none (decisions/0034)."""
    protocols: tuple[Assignor, ...] = ()
    """Of a classic member: its assignors by preference."""
    assignment: bytes = b""
    """The classic leader's last assignment: the member may own these partitions until the next one."""
    has_joined: bool = True
    """Whether a classic member is in the current generation, or has joined the next."""
    subscribed_topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    shares: tuple[Share, ...] = ()
    """What it owns, the longest owned first."""
    target: Partitions = NOTHING
    state: MemberState = MemberState.STABLE
    pending_revocation: Partitions = NOTHING
    """Partitions of its shares that it has to give up and has not yet confirmed."""
    revoke_by_ms: int = NO_DEADLINE
    """The time at which it is removed, unless it gives up `pending_revocation` or, by the classic protocol,
    rejoins or syncs."""
    server_assignor: str | None = None
    subscribed_topic_regex: str = ""
    matched: tuple[int, ...] = ()
    """The numbers of the topics that match its regular expression and that it may describe."""
    rack_id: str | None = None

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols).get(protocol, b"")

    @property
    def owned(self) -> Partitions:
        """The partitions that no other member may get."""
        return NOTHING.union(*(share.partitions for share in self.shares))

    @property
    def assigned(self) -> Partitions:
        return self.owned - self.pending_revocation

    def kept_since(self, epoch: int) -> Partitions:
        """What it owned in this epoch and has not given up since."""
        return NOTHING.union(*(s.partitions for s in self.shares if s.since_epoch <= epoch))

    def keeping(self, kept: Partitions, epoch: int, new: Partitions = NOTHING) -> tuple[Share, ...]:
        """The shares of a member that keeps some partitions and gets new ones in this epoch."""
        shares = {share.since_epoch: share.partitions & kept for share in self.shares}
        shares[epoch] = shares.get(epoch, NOTHING) | new
        return tuple(Share(since, some) for since, some in shares.items() if some)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


def by_topic(partitions: Partitions) -> list[tuple[int, list[int]]]:
    """The numbers of the topics in order, each with those of its partitions in order."""
    topics = groupby(sorted(partitions), itemgetter(0))
    return [(topic, [number for _, number in of_topic]) for topic, of_topic in topics]


def flat(topics: list[tuple[int, list[int]]]) -> Partitions:
    """The partitions of `by_topic`. Raises TypeError and ValueError for anything else."""
    return frozenset((topic, number) for topic, numbers in topics for number in numbers)
