"""Every row of the table by the pure decisions, and what holds for whatever members do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb import TopicPartition, errors
from eosdb.coordinator.groups import consumer_decisions, decisions
from eosdb.coordinator.groups.consumer_decisions import (
    AWAY,
    ConsumerGroup,
    MemberHeartbeat,
)
from eosdb.coordinator.groups.decisions import Group
from eosdb.model.protocol.consumer_protocol import Subscription, encode_assignment
from eosdb.model.protocol.members import (
    NO_DEADLINE,
    NOTHING,
    Assignor,
    Member,
    MemberState,
    Partitions,
    Share,
)
from eosdb.model.values import GroupState
from tests.coordinator.groups.by_decisions import Decided
from tests.coordinator.groups.classic_table import ELECTIONS
from tests.coordinator.groups.steps import Hello, Join, Step, Topic, Wait, check_all, enter
from tests.coordinator.groups.table import PREFERENCES, TABLE


def test_the_decisions_are_those_of_the_table() -> None:
    check_all(TABLE, lambda _: Decided())


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("wants", "elected"), ELECTIONS)
def test_each_members_first_that_all_support_is_its_vote_and_the_last_name_wins_a_draw(
    wants: tuple[str, ...], elected: str
) -> None:
    protocols = [Join("", wants=each).protocols for each in wants]
    members = (Member(f"m{i}", protocols=each) for i, each in enumerate(protocols))
    assert decisions.elected_protocol(tuple(members)) == elected


@pytest.mark.parametrize(("preferences", "elected"), PREFERENCES)
def test_members_without_a_preference_do_not_vote(
    preferences: tuple[str | None, ...], elected: str
) -> None:
    members = (Member(f"m{i}", server_assignor=one) for i, one in enumerate(preferences))
    group = ConsumerGroup("g", members=tuple(members))
    assert consumer_decisions.assignor_of(group) == elected


def test_of_two_deadlines_the_first_is_the_groups_and_a_member_is_removed_after_its_own() -> None:
    late, later = Member("a", revoke_by_ms=9), Member("b", revoke_by_ms=7)
    group = ConsumerGroup("g", members=(late, later, Member("c")))
    assert group.deadline_ms == 7
    overdue = [consumer_decisions.overdue(group, now) for now in (7, 8, 9, 10)]
    assert overdue == [set(), {"b"}, {"b"}, {"a", "b"}]
    assert ConsumerGroup("g", members=(Member("c"),)).deadline_ms == NO_DEADLINE


def test_a_static_member_that_missed_a_generation_has_lost_what_this_gave_to_others() -> None:
    """Otherwise it revokes them later, in a generation in which it may commit."""
    had, kept = [TopicPartition("t", 0), TopicPartition("t", 1)], [TopicPartition("t", 0)]
    away = Member("s", "i", protocols=_claiming([]), assignment=encode_assignment(kept))
    other = Member("b", protocols=_claiming([]))
    group = Group("g", GroupState.STABLE, "consumer", "range", 2, "b", (away, other))
    with pytest.raises(errors.UnknownMemberIdError, match="missed a generation"):
        decisions.join(group, away._replace(protocols=_claiming(had)), "consumer", 0)
    decisions.join(group, away._replace(protocols=_claiming(kept)), "consumer", 0)
    claimed = away._replace(protocols=_claiming(had), assignment=b"")
    group = replace(group, members=(claimed, other))
    decisions.join(group, claimed, "consumer", 0)


def test_the_successor_of_a_static_member_that_had_to_give_up_partitions_begins_a_rebalance() -> (
    None
):
    """Its predecessor would have joined again without them; now nobody else would ask for them."""
    tps, other = (
        [TopicPartition("t", 0), TopicPartition("t", 1)],
        Member("b", protocols=_claiming([])),
    )
    for assigned, state in ((tps, "Stable"), (tps[:1], "PreparingRebalance")):
        holder = Member("s", "i", protocols=_claiming(tps), assignment=encode_assignment(assigned))
        group = Group("g", GroupState.STABLE, "consumer", "range", 2, "b", (holder, other))
        successor = Member("s2", "i", protocols=_claiming([]))
        assert decisions.join(group, successor, "consumer", 0).state.value == state


def test_a_classic_member_of_a_changed_group_commits_nothing_that_another_member_has_got_since() -> (
    None
):
    """It gave partitions up in its generation, before the group changed over, and has no newer epoch."""
    kept, given_up = frozenset({(1, 0)}), frozenset({(1, 1)})
    giver = Member("a", protocols=_claiming([]), member_epoch=2, shares=(Share(2, kept),))
    taker = Member("b", member_epoch=3, shares=(Share(3, given_up),))
    group = ConsumerGroup("g", 3, members=(giver, taker))
    for transactional in (False, True):
        check = partial(
            consumer_decisions.check_commit, group, "a", 2, is_transactional=transactional
        )
        check(partitions=kept)
        early = taker._replace(member_epoch=2, shares=(Share(2, given_up),))
        consumer_decisions.check_commit(  # As in Kafka: it never had this partition.
            ConsumerGroup("g", 3, members=(giver, early)), "a", 2,
            partitions=given_up, is_transactional=transactional,
        )  # fmt: skip
        with pytest.raises(errors.IllegalGenerationError, match="another member has got"):
            check(partitions=kept | given_up)


def _claiming(tps: list[TopicPartition]) -> tuple[Assignor, ...]:
    return (Assignor("range", Subscription(("t",), tuple(tps)).encode()),)


@pytest.mark.parametrize("max_size", [1, 2, 3])
@pytest.mark.parametrize("more", [enter, Join])
def test_a_group_takes_as_many_members_as_it_may_have(
    more: Callable[[str], Step], max_size: int
) -> None:
    group = Decided(max_size=max_size)
    for number in range(max_size):
        assert group.ask(enter(f"m{number}"))[:1].isdigit()
    assert group.ask(more("one more")) == "GROUP_MAX_SIZE_REACHED"
    assert group.ask(Hello("m0"))[:1].isdigit()


def test_a_heartbeat_that_says_all_by_an_expression_is_full() -> None:
    beat = MemberHeartbeat(
        "g", member_id="a", member_epoch=1, rebalance_timeout_ms=1, owned=NOTHING
    )
    assert not beat.is_full
    assert replace(beat, subscribed_topic_names=()).is_full
    assert replace(beat, subscribed_topic_regex="t.*").is_full
    assert not replace(beat, subscribed_topic_regex="t.*", owned=None).is_full


# -- whatever members of the new protocol do ---------------------------------------------------------

ACTIONS = st.tuples(
    st.sampled_from(["join", "stay", "obey", "leave", "away", "overdue", "topics"]),
    st.integers(0, 3),
)


@pytest.mark.slow
@given(st.lists(ACTIONS, max_size=40))
def test_no_partition_has_two_owners_and_all_are_owned_in_the_end(
    actions: list[tuple[str, int]],
) -> None:
    group, owned, epochs = Decided(), dict[str, Partitions](), dict[str, int]()
    for action, which in actions:
        _act(group, action, which)
        before, owned = owned, {m.member_id: m.owned for m in _members(group)}
        every = [partition for some in owned.values() for partition in some]
        assert len(every) == len(set(every)), "owned twice"
        for member in _members(group):
            if member.member_id in before and member.member_epoch > 0:
                assert member.member_epoch >= epochs.get(member.member_id, 0)
            epochs[member.member_id] = max(member.member_epoch, 0)
    for member in _members(group):
        if member.member_epoch == AWAY:
            group.ask(Hello(member.member_id, -1, instance=member.group_instance_id))
    if not _members(group):
        return
    for _ in range(2 * len(_members(group)) + 4):
        for member in _members(group):
            _obey(group, member)
    assert isinstance(group.group, ConsumerGroup)
    assert group.group.state is GroupState.STABLE
    topic, count = group.topics["t"]
    final = {partition for m in _members(group) for partition in m.assigned}
    assert final == {(topic, number) for number in range(count)}
    assert all(m.state is MemberState.STABLE for m in _members(group))


def _members(group: Decided) -> tuple[Member, ...]:
    return group.group.members if isinstance(group.group, ConsumerGroup) else ()


def _obey(group: Decided, member: Member) -> None:
    """The member gives up what it is told to, and says so."""
    owns = group.short(member.assigned)
    group.ask(Hello(member.member_id, owns=owns, instance=member.group_instance_id))


def _act(group: Decided, action: str, which: int) -> None:
    member_id = "abcd"[which]
    known = {m.member_id: m for m in _members(group)}.get(member_id)
    instance = None if known is None else known.group_instance_id
    is_here = known is not None and known.member_epoch != AWAY
    match action:
        case "topics":
            if which % 2:  # It is made anew.
                group.ask(Topic("t", 0))
            group.ask(Topic("t", 4 + which))
        case "overdue":
            group.ask(Wait(30_001))
        case "join" if not is_here:
            group.ask(enter(member_id, f"i{which}" if which % 2 else None))
        case "stay" if is_here:
            group.ask(Hello(member_id, instance=instance))
        case "obey" if is_here and known is not None:
            _obey(group, known)
        case "leave" if known is not None:
            group.ask(Hello(member_id, -1, instance=instance))
        case "away" if is_here and instance is not None:
            group.ask(Hello(member_id, -2, instance=instance))
