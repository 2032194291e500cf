"""What joins, syncs, departures and time-outs make of a group: Kafka's classic protocol as pure values."""

from __future__ import annotations

import pytest

from eosdb.coordinator.groups import decisions
from eosdb.coordinator.groups.decisions import Group, Member
from eosdb.errors import (
    ApiError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.values import GroupState, TopicPartition

RANGE, ROBIN = ("range", b""), ("roundrobin", b"")
NOW = 1_000
UNKNOWN = GroupIdNotFoundError("no such group")


def member(
    name: str,
    *protocols: tuple[str, bytes],
    instance: str | None = None,
    rebalance_ms: int = 60_000,
) -> Member:
    return Member(name, instance, "client", 10_000, rebalance_ms, protocols or (RANGE,))


def join(group: Group, *members: Member, now: int = NOW) -> Group:
    for joining in members:
        group = decisions.join(group, joining, "consumer", now)
    return group


def stable(*members: Member) -> Group:
    """All of them in one generation, with an assignment each."""
    group = join(Group("g"), *members)
    group = join(group, *members)
    leader = group.leader
    assert leader is not None
    return decisions.sync(
        group, leader, group.generation_id, {m.member_id: m.member_id.encode() for m in members}
    )


def ids(group: Group) -> list[str]:
    return [m.member_id for m in group.members]


def test_the_first_to_join_leads_and_its_sync_makes_the_group_stable() -> None:
    group = join(Group("g"), member("a"))
    assert (group.state, group.generation_id, group.leader, group.protocol_name) == (
        GroupState.COMPLETING_REBALANCE, 1, "a", "range",
    )  # fmt: skip
    done = decisions.sync(group, "a", 1, {"a": b"all"})
    assert done.state is GroupState.STABLE
    assert done.members[0].assignment == b"all"


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    group = join(stable(member("a")), member("b"))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert not decisions.is_in_generation(group, "b")
    with pytest.raises(RebalanceInProgressError):
        decisions.check_heartbeat(group, group.generation_id)
    group = join(group, member("a"))
    assert (group.state, group.generation_id, group.leader) == (
        GroupState.COMPLETING_REBALANCE, 2, "a",
    )  # fmt: skip
    assert decisions.is_in_generation(group, "b")


def test_only_the_leaders_sync_counts() -> None:
    group = join(join(stable(member("a")), member("b")), member("a"))
    assert decisions.sync(group, "b", 2, {"b": b"mine"}) == group
    done = decisions.sync(group, "a", 2, {"a": b"1", "b": b"2"})
    assert [m.assignment for m in done.members] == [b"1", b"2"]
    assert decisions.sync(done, "b", 2, {}) == done


def test_asking_again_changes_nothing_unless_the_leader_asks_or_tells_something_new() -> None:
    group = stable(member("a"), member("b"))
    assert join(group, member("b")) == group
    assert join(group, member("a")).state is GroupState.PREPARING_REBALANCE
    told = join(group, member("b", ("range", b"more topics")))
    assert told.state is GroupState.PREPARING_REBALANCE
    completing = join(join(stable(member("a")), member("b")), member("a"))
    assert join(completing, member("a")) == completing


def test_whoever_does_not_join_in_time_is_left_behind() -> None:
    group = join(stable(member("a"), member("b")), member("c"))
    group = join(group, member("b"))
    late = decisions.overdue(group, NOW + 60_001)
    assert (late.state, ids(late), late.leader) == (
        GroupState.COMPLETING_REBALANCE, ["b", "c"], "b",
    )  # fmt: skip


def test_a_leader_that_never_syncs_is_replaced() -> None:
    group = join(join(stable(member("a")), member("b")), member("a"))
    group = decisions.overdue(group, NOW + 60_001)
    assert (ids(group), group.state) == (["b"], GroupState.PREPARING_REBALANCE)
    group = join(group, member("b"))
    assert (group.leader, group.generation_id) == ("b", 3)


@pytest.mark.parametrize("left", [{"a"}, {"b"}])
def test_when_somebody_leaves_the_others_form_a_new_generation(left: set[str]) -> None:
    group = decisions.leave(stable(member("a"), member("b")), left, NOW)
    (stays,) = {"a", "b"} - left
    assert (group.state, ids(group)) == (GroupState.PREPARING_REBALANCE, [stays])
    assert join(group, member(stays)).leader == stays


def test_when_the_last_one_leaves_the_group_is_empty_and_its_generation_over() -> None:
    group = decisions.leave(stable(member("a")), {"a"}, NOW)
    assert (group.state, group.members, group.generation_id) == (GroupState.EMPTY, (), 2)
    assert (group.protocol_type, group.protocol_name) == ("consumer", None)
    assert join(group, member("b", ROBIN)).protocol_name == "roundrobin"


def test_who_was_waited_for_may_leave_as_well() -> None:
    group = join(stable(member("a")), member("b"))
    assert decisions.leave(group, {"a"}, NOW).state is GroupState.COMPLETING_REBALANCE


def test_each_votes_for_its_first_protocol_that_all_support() -> None:
    group = stable(
        member("a", ("sticky", b""), RANGE, ROBIN),
        member("b", ROBIN, RANGE),
        member("c", ROBIN, RANGE),
    )
    assert group.protocol_name == "roundrobin"


@pytest.mark.parametrize(
    ("joining", "protocol_type"),
    [(member("b", ROBIN), "consumer"), (member("b"), "connect"), (member("b"), "")],
)
def test_members_need_a_protocol_in_common(joining: Member, protocol_type: str) -> None:
    with pytest.raises(InconsistentGroupProtocolError):
        decisions.join(stable(member("a")), joining, protocol_type, NOW)


def test_a_static_member_that_returns_takes_over_without_a_rebalance() -> None:
    """KIP-345: and whoever held the identity before is fenced."""
    group = stable(member("a"), member("b", instance="worker-1"))
    back = join(group, member("b2", instance="worker-1"))
    assert (back.state, back.generation_id, ids(back)) == (
        GroupState.STABLE, group.generation_id, ["a", "b2"],
    )  # fmt: skip
    assert back.members[1].assignment == b"b"
    with pytest.raises(FencedInstanceIdError):
        decisions.known_member(back, "b", "worker-1")
    assert decisions.known_member(back, "b2", "worker-1").member_id == "b2"


def test_a_static_leader_that_returns_still_leads() -> None:
    group = stable(member("a", instance="worker-0"), member("b"))
    assert join(group, member("a2", instance="worker-0")).leader == "a2"


def test_a_static_member_that_wants_something_else_is_a_rebalance() -> None:
    wants, wants_more = wanting("t"), wanting("t", "u")
    group = stable(member("a", wants), member("b", wants, instance="worker-1"))
    assert (
        join(group, member("b2", wants_more, instance="worker-1")).state
        is GroupState.PREPARING_REBALANCE
    )
    owns = ("range", Subscription(("t",), (TopicPartition("t", 0),), 5).encode())
    assert join(group, member("b2", owns, instance="worker-1")).state is GroupState.STABLE


def test_a_static_member_that_turns_the_vote_is_a_rebalance() -> None:
    """Its successor prefers what the others do not mind."""
    both = (("range", b""), ("roundrobin", b""))
    group = stable(member("a", *both, instance="worker-0"))
    assert group.protocol_name == "range"
    back = join(group, member("a2", *reversed(both), instance="worker-0"))
    assert (back.state, back.protocol_name) == (GroupState.COMPLETING_REBALANCE, "roundrobin")


def wanting(*topics: str) -> tuple[str, bytes]:
    return "range", Subscription(topics).encode()


def test_a_static_member_is_not_left_behind() -> None:
    group = join(stable(member("a"), member("b", instance="worker-1")), member("c"))
    group = decisions.overdue(join(group, member("a")), NOW + 60_001)
    assert ids(group) == ["a", "b", "c"]


def test_a_static_member_need_not_name_its_instance_again() -> None:
    """As in Kafka: aiokafka names it in JoinGroup only."""
    group = stable(member("a"), member("b", instance="worker-1"))
    assert decisions.known_member(group, "b", None).group_instance_id == "worker-1"
    rejoined = decisions.join(group, member("b", ("range", b"new")), "consumer", 0)
    assert rejoined.instance("worker-1") is not None


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("x", None, UnknownMemberIdError),
        ("a", "worker-9", UnknownMemberIdError),
        ("x", "worker-1", FencedInstanceIdError),
    ],
)
def test_who_is_no_member(member_id: str, instance: str | None, error: type[ApiError]) -> None:
    group = stable(member("a"), member("b", instance="worker-1"))
    with pytest.raises(error):
        decisions.known_member(group, member_id, instance)


def test_another_generation_is_refused() -> None:
    group = stable(member("a"))
    for generation in (0, 2):
        with pytest.raises(IllegalGenerationError):
            decisions.check_heartbeat(group, generation)
        with pytest.raises(IllegalGenerationError):
            decisions.sync(group, "a", generation, {})


ONE = stable(member("a"))
PREPARING = join(ONE, member("b"))
COMPLETING = join(PREPARING, member("a"))


@pytest.mark.parametrize(
    ("group", "committer", "plain", "transactional"),
    [
        (None, ("", -1), None, None),
        (None, ("a", -1), None, None),
        (None, ("a", 1), "GROUP_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND"),
        (Group("g"), ("", -1), None, None),
        (Group("g"), ("a", 0), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (ONE, ("", -1), "UNKNOWN_MEMBER_ID", None),
        (ONE, ("a", 1), None, None),
        (ONE, ("a", 0), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (ONE, ("a", -1), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (ONE, ("x", 1), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
        (PREPARING, ("a", 1), None, None),
        (COMPLETING, ("a", 2), "REBALANCE_IN_PROGRESS", None),
        (COMPLETING, ("a", 1), "ILLEGAL_GENERATION", "ILLEGAL_GENERATION"),
        (COMPLETING, ("x", 2), "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_who_may_commit_offsets(
    group: Group | None, committer: tuple[str, int], plain: str | None, transactional: str | None
) -> None:
    """Inside a transaction nobody needs to be a member; who says it is one must be (KIP-447)."""
    for is_transactional, expected in ((False, plain), (True, transactional)):
        try:
            decisions.check_commit(
                group, *committer, None, is_transactional=is_transactional, unknown_group=UNKNOWN
            )
        except ApiError as error:
            assert error.name == expected
        else:
            assert expected is None
