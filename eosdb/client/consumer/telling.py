"""What a member says of its membership: each generation once, and how it lost one.

Collected under the membership's lock, which heartbeats need, and said without it.
"""

from __future__ import annotations

from collections.abc import Collection

from eosdb.errors import EosdbError
from eosdb.model.notices import catalog
from eosdb.model.notices.notice import Notice, Untold, error_text
from eosdb.model.values import ConsumerGroupMetadata, TopicPartition


class MembershipTelling:
    """Of one member."""

    def __init__(self) -> None:
        self._untold = Untold()
        self._before: frozenset[TopicPartition] = frozenset()
        """The partitions of the generation before."""

    def tell(self) -> None:
        """Say what has been collected."""
        if self._untold.waiting:
            self._untold.tell()

    def rebalanced(
        self, member: ConsumerGroupMetadata, assigned: Collection[TopicPartition]
    ) -> None:
        """The member is in a generation, with these partitions."""
        before, now = self._before, frozenset(assigned)
        self._before = now
        gained, lost = _names(now - before), _names(before - now)
        self._add(
            catalog.REBALANCED,
            member,
            "group %s: generation %d: member %s reads %s (gained %s; lost %s)",
            member.group_id,
            member.generation_id,
            member.member_id,
            ", ".join(_names(now)) or "nothing",
            ", ".join(gained) or "nothing",
            ", ".join(lost) or "nothing",
            generation_id=member.generation_id,
            gained=gained,
            lost=lost,
        )

    def lost(self, member: ConsumerGroupMetadata, error: EosdbError) -> None:
        """The group has gone on without the member."""
        self._before = frozenset()
        self._add(
            catalog.MEMBERSHIP_LOST,
            member,
            "group %s: member %s is out of generation %d, and joins again: %s",
            member.group_id,
            member.member_id,
            member.generation_id,
            error_text(error),
            generation_id=member.generation_id,
            error=type(error).__name__,
        )

    def absent(self, member: ConsumerGroupMetadata, max_poll_interval_ms: int) -> None:
        """The member leaves, for its program does not poll."""
        self._before = frozenset()
        self._add(
            catalog.POLLED_TOO_LATE,
            member,
            "group %s: member %s leaves: its program has not polled for max_poll_interval_ms=%d; process "
            "fewer records for each poll (max_poll_records), or raise it",
            member.group_id,
            member.member_id,
            max_poll_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
        )

    def fenced(self, member: ConsumerGroupMetadata) -> None:
        """Another consumer is the static member now."""
        self._add(
            catalog.MEMBER_FENCED,
            member,
            "group %s: another consumer has joined as group_instance_id %s; this one can only be closed",
            member.group_id,
            member.group_instance_id,
            group_instance_id=member.group_instance_id,
        )

    def _add(
        self,
        notice: Notice,
        member: ConsumerGroupMetadata,
        message: str,
        *args: object,
        **fields: object,
    ) -> None:
        self._untold.add(
            notice, message, *args, group_id=member.group_id, member_id=member.member_id, **fields
        )


def _names(tps: Collection[TopicPartition]) -> list[str]:
    return [str(tp) for tp in sorted(tps)]
