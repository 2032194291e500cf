"""Deliberate bugs in groups whose partitions the coordinator assigns (KIP-848)."""

from __future__ import annotations

import contextlib
from typing import Any

from eosdb.coordinator.groups import consumer_decisions, rows
from eosdb.errors import IllegalGenerationError, UnknownMemberIdError
from eosdb.model.protocol.members import NOTHING
from tests.simulation.planting import instead_of


@instead_of(
    "a partition is given away before its owner has given it up", consumer_decisions, "_reconciled"
)
def partitions_are_given_too_early(
    reconciled: Any, member: Any, epoch: int, owned: Any, taken: Any, now_ms: int
) -> Any:
    return reconciled(member, epoch, owned, NOTHING, now_ms)


@instead_of(
    "a transaction takes offsets of a member's epoch that is over",
    consumer_decisions,
    "check_commit",
)
def transactions_take_offsets_of_old_member_epochs(
    check: Any, *arguments: Any, **options: Any
) -> None:
    with contextlib.suppress(IllegalGenerationError):
        check(*arguments, **options)


@instead_of(
    "a group that the coordinator assigns takes the offsets of a member that was removed",
    consumer_decisions,
    "check_commit",
)
def assigned_group_takes_offsets_of_strangers(check: Any, *arguments: Any, **options: Any) -> None:
    with contextlib.suppress(UnknownMemberIdError):
        check(*arguments, **options)


@instead_of("what a removed member had is not shared out anew", consumer_decisions, "remove")
def removal_keeps_the_assignment(remove: Any, group: Any, member_ids: Any) -> Any:
    gone = [m.member_id for m in group.members if m.member_id in member_ids]
    return group.with_members((), gone)


@instead_of("members whose sessions have ended stay in the group", consumer_decisions, "remove")
def nobody_is_removed(remove: Any, group: Any, member_ids: Any) -> Any:
    is_late = any(m.revoke_by_ms >= 0 for m in group.members if m.member_id in member_ids)
    return remove(group, member_ids) if is_late else group


@instead_of("the event does not say who has left", rows, "change")
def the_gone_are_not_recorded(change: Any, *arguments: Any) -> Any:
    return change(*arguments)._replace(removed=())


@instead_of(
    "a static member that comes back stands beside its former self",
    consumer_decisions,
    "_subscribed_member",
)
def static_members_double(subscribed: Any, group: Any, beat: Any) -> Any:
    return (subscribed(group, beat)[0], None)


@instead_of("a rebalance leaves a partition out", consumer_decisions, "_with_target")
def a_partition_is_left_out(with_target: Any, group: Any, topics: Any, numbers: Any) -> Any:
    fewer = {number: count - (len(group.members) > 1) for number, count in numbers.items()}
    return with_target(group, topics, fewer)
