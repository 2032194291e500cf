"""Deliberate bugs in groups whose partitions the coordinator assigns (KIP-848)."""

from __future__ import annotations

import contextlib
from typing import Any

from eosdb.coordinator.groups import consumer_decisions, consumer_rows
from eosdb.coordinator.groups.consumer_group import NOTHING
from eosdb.errors import IllegalGenerationError, UnknownMemberIdError
from tests.simulation.planting import mutant, replaced


@mutant("a partition is given away before its owner has given it up")
def partitions_are_given_too_early() -> Any:
    def make(reconciled: Any) -> Any:
        def moved(member: Any, epoch: int, owned: Any, taken: Any, now_ms: int) -> Any:
            return reconciled(member, epoch, owned, NOTHING, now_ms)

        return moved

    return replaced(consumer_decisions, "_reconciled", make)


@mutant("a transaction takes offsets of a member's epoch that is over")
def transactions_take_offsets_of_old_member_epochs() -> Any:
    def make(check: Any) -> Any:
        def checked(*arguments: Any, **options: Any) -> None:
            with contextlib.suppress(IllegalGenerationError):
                check(*arguments, **options)

        return checked

    return replaced(consumer_decisions, "check_commit", make)


@mutant("a group that the coordinator assigns takes the offsets of a member that was removed")
def assigned_group_takes_offsets_of_strangers() -> Any:
    def make(check: Any) -> Any:
        def checked(*arguments: Any, **options: Any) -> None:
            with contextlib.suppress(UnknownMemberIdError):
                check(*arguments, **options)

        return checked

    return replaced(consumer_decisions, "check_commit", make)


@mutant("what a removed member had is not shared out anew")
def removal_keeps_the_assignment() -> Any:
    def make(remove: Any) -> Any:
        def removed(group: Any, member_ids: Any) -> Any:
            gone = [m.member_id for m in group.members if m.member_id in member_ids]
            return group.with_members((), gone)

        return removed

    return replaced(consumer_decisions, "remove", make)


@mutant("members whose sessions have ended stay in the group")
def nobody_is_removed() -> Any:
    def make(remove: Any) -> Any:
        def removed(group: Any, member_ids: Any) -> Any:
            is_late = any(m.revoke_by_ms >= 0 for m in group.members if m.member_id in member_ids)
            return remove(group, member_ids) if is_late else group

        return removed

    return replaced(consumer_decisions, "remove", make)


@mutant("the event does not say who has left")
def the_gone_are_not_recorded() -> Any:
    def make(change: Any) -> Any:
        return lambda *arguments: change(*arguments)._replace(removed=())

    return replaced(consumer_rows, "change", make)


@mutant("a static member that comes back stands beside its former self")
def static_members_double() -> Any:
    def make(subscribed: Any) -> Any:
        return lambda group, beat: (subscribed(group, beat)[0], None)

    return replaced(consumer_decisions, "_subscribed_member", make)


@mutant("a rebalance leaves a partition out")
def a_partition_is_left_out() -> Any:
    def make(with_target: Any) -> Any:
        def shared(group: Any, topics: Any, numbers: Any) -> Any:
            fewer = {number: count - (len(group.members) > 1) for number, count in numbers.items()}
            return with_target(group, topics, fewer)

        return shared

    return replaced(consumer_decisions, "_with_target", make)
