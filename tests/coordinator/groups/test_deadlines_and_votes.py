"""Who is removed at a deadline and who is not, which assignor is elected, and how large a group may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eosdb.coordinator.groups import consumer_decisions, decisions
from eosdb.coordinator.groups.consumer_group import (
    NO_DEADLINE,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
)
from eosdb.errors import GroupMaxSizeReachedError
from tests.coordinator.groups.test_consumer_decisions import (
    NOW,
    REVOKE_MS,
    Group,
    group,
    parts,
)
from tests.coordinator.groups.test_decisions import RANGE, ROBIN, ids, join, member, stable

__all__ = ["group"]
LATER = 10**9


# -- the classic protocol ----------------------------------------------------------------------------


def test_once_the_leader_has_synced_no_deadline_is_left() -> None:
    synced = stable(member("a"), member("b"))
    assert synced.deadline_ms == decisions.NO_DEADLINE
    assert decisions.overdue(synced, LATER) is synced


def test_the_longest_rebalance_time_out_counts_and_joins_do_not_extend_it() -> None:
    patient, other = member("a", rebalance_ms=90_000), member("b", rebalance_ms=10_000)
    preparing = join(stable(patient, other), member("c", rebalance_ms=5_000))
    assert preparing.deadline_ms == NOW + 90_000
    assert join(preparing, other, now=NOW + 50_000).deadline_ms == NOW + 90_000


@pytest.mark.parametrize(
    ("protocols", "elected"),
    [
        ([(RANGE, ROBIN)], "range"),
        ([(RANGE, ROBIN), (ROBIN, RANGE)], "roundrobin"),
        ([(RANGE, ROBIN), (RANGE, ROBIN), (ROBIN, RANGE)], "range"),
        ([(ROBIN, RANGE), (RANGE, ROBIN), (RANGE,)], "range"),
        ([(("x", b""), ROBIN, RANGE), (RANGE, ROBIN), (ROBIN, RANGE)], "roundrobin"),
    ],
)
def test_each_members_first_that_all_support_is_its_vote_and_the_last_name_wins_a_draw(
    protocols: Sequence[Sequence[tuple[str, bytes]]], elected: str
) -> None:
    members = [member(f"m{i}", *each) for i, each in enumerate(protocols)]
    assert stable(*members).protocol_name == elected


def test_a_static_member_waits_for_its_session_and_not_for_the_rebalance() -> None:
    preparing = join(stable(member("a"), member("s", instance="one")), member("b"))
    preparing = join(preparing, member("a"))
    formed = decisions.overdue(preparing, NOW + 60_000)
    assert ids(formed) == ["a", "s", "b"]
    assert formed.leader in ("a", "b")


# -- the new protocol --------------------------------------------------------------------------------


def voting(*preferences: str | None) -> ConsumerGroup:
    members = [
        ConsumerMember(f"m{i}", server_assignor=preference)
        for i, preference in enumerate(preferences)
    ]
    return ConsumerGroup("g", members=tuple(members))


@pytest.mark.parametrize(
    ("preferences", "elected"),
    [
        ((), "uniform"),
        ((None, None), "uniform"),
        (("range",), "range"),
        (("range", None, None, None), "range"),
        (("range", "range", "uniform"), "range"),
        (("uniform", "range", "uniform", None), "uniform"),
    ],
)
def test_members_without_a_preference_do_not_vote(
    preferences: tuple[str | None, ...], elected: str
) -> None:
    assert consumer_decisions.assignor_of(voting(*preferences)) == elected


def test_a_member_is_removed_after_its_deadline_not_at_it(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.stay("a", parts(0, 1, 2, 3))
    assert group.value.deadline_ms == NOW + REVOKE_MS
    assert consumer_decisions.overdue(group.value, NOW + REVOKE_MS) == set()
    assert consumer_decisions.overdue(group.value, NOW + REVOKE_MS + 1) == {"a"}


def test_of_two_deadlines_the_first_is_the_groups() -> None:
    late, later = ConsumerMember("a", revoke_by_ms=9), ConsumerMember("b", revoke_by_ms=7)
    assert ConsumerGroup("g", members=(late, later, ConsumerMember("c"))).deadline_ms == 7
    assert ConsumerGroup("g", members=(ConsumerMember("c"),)).deadline_ms == NO_DEADLINE


def test_a_static_member_that_goes_away_keeps_what_it_reads_and_not_what_it_was_giving_up(
    group: Group,
) -> None:
    """Its process has ended: nothing is read any more of what it was told to give up, and nobody is there
    who could confirm it in time."""
    group.join("a", "one")
    group.join("b")
    told = group.stay("a", parts(0, 1, 2, 3))
    assert told.pending_revocation == parts(2, 3)
    group.leave("a", for_a_while=True)
    away = group["a"]
    assert (away.owned, away.pending_revocation) == (parts(0, 1), NOTHING)
    assert group.value.deadline_ms == NO_DEADLINE
    assert consumer_decisions.overdue(group.value, LATER) == set()
    assert group.stay("b").assigned == parts(2, 3)


def test_a_static_member_that_comes_back_begins_at_the_groups_epoch(group: Group) -> None:
    group.join("a", "one")
    group.join("b")
    group.obey("a")
    group.leave("a", for_a_while=True)
    back = group.join("again", "one")
    assert back.member_epoch == group.value.group_epoch
    assert back.assigned == parts(0, 1)


@pytest.mark.parametrize("owned", [None, parts(2), parts(0, 1, 3)])
def test_only_a_heartbeat_that_names_what_is_left_confirms_a_revocation(
    group: Group, owned: frozenset[tuple[int, int]] | None
) -> None:
    group.join("a")
    group.join("b")
    group.stay("a", parts(0, 1, 2, 3))
    assert group.stay("a", owned).pending_revocation == parts(2, 3)
    assert group.stay("b").assigned == NOTHING


def test_more_partitions_of_a_topic_are_a_new_target(group: Group) -> None:
    group.join("a")
    before = group.value
    group.topics["t"] = (1, 5)
    assert group.stay("a").assigned == parts(*range(5))
    assert group.value.metadata_hash != before.metadata_hash
    group.topics["t"] = (2, 5)
    assert group.stay("a").assigned == NOTHING or group["a"].target != parts(*range(5))


@pytest.mark.parametrize("max_size", [1, 2, 3])
def test_a_group_takes_as_many_members_as_it_may_have(group: Group, max_size: int) -> None:
    group.max_size = max_size
    for number in range(max_size):
        group.join(f"m{number}")
    with pytest.raises(GroupMaxSizeReachedError):
        group.join("one more")
    group.value = replace(group.value)
    group.stay("m0")
