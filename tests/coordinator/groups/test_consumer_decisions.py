"""What a heartbeat does to a group whose partitions the coordinator assigns: joining, giving up before
getting, fencing, leaving (KIP-848)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.coordinator.groups import consumer_decisions as decisions
from eosdb.coordinator.groups.consumer_decisions import Heartbeat
from eosdb.coordinator.groups.consumer_group import (
    AWAY,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from eosdb.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from eosdb.model.values import GroupState

T = 1
TOPICS = {"t": (T, 4)}
NOW, REVOKE_MS = 1_000, 60_000


def parts(*numbers: int) -> Partitions:
    return frozenset((T, number) for number in numbers)


class Group:
    """A group to which heartbeats go, and what each member believes to own."""

    def __init__(self) -> None:
        self.value = ConsumerGroup("g")
        self.topics = dict(TOPICS)
        self.max_size = 100

    def beat(self, beat: Heartbeat, now_ms: int = NOW) -> ConsumerMember:
        decisions.check_heartbeat(beat)
        self.value = decisions.heartbeat(
            self.value,
            beat,
            self.topics,
            now_ms=now_ms,
            session_timeout_ms=45_000,
            max_size=self.max_size,
        )
        return self[beat.member_id]

    def join(self, member_id: str, instance: str | None = None, **given: object) -> ConsumerMember:
        first = Heartbeat(
            member_id,
            0,
            group_instance_id=instance,
            rebalance_timeout_ms=REVOKE_MS,
            subscribed_topic_names=("t",),
            owned=NOTHING,
        )
        return self.beat(replace(first, **given))  # type: ignore[arg-type]

    def stay(self, member_id: str, owned: Partitions | None = None) -> ConsumerMember:
        member = self[member_id]
        instance = member.group_instance_id
        return self.beat(Heartbeat(member_id, member.member_epoch, instance, owned=owned))

    def obey(self, member_id: str) -> ConsumerMember:
        """The member gives up what it is told to, and says so."""
        return self.stay(member_id, self[member_id].assigned)

    def leave(self, member_id: str, *, for_a_while: bool = False) -> None:
        if for_a_while:
            self.value = decisions.leave_for_a_while(self.value, self[member_id])
        else:
            self.value = decisions.remove(self.value, {member_id})

    def __getitem__(self, member_id: str) -> ConsumerMember:
        return decisions.known_member(self.value, member_id)


@pytest.fixture
def group() -> Group:
    return Group()


def test_the_first_member_gets_all_partitions_at_once(group: Group) -> None:
    member = group.join("a")
    assert (member.assigned, member.member_epoch) == (parts(0, 1, 2, 3), 1)
    assert group.value.state is GroupState.STABLE


def test_a_partition_changes_hands_only_after_its_owner_has_given_it_up(group: Group) -> None:
    group.join("a")
    assert group.join("b").assigned == NOTHING
    assert group.value.state.value == "Reconciling"
    told = group.stay("a")
    assert (told.assigned, told.pending_revocation) == (parts(0, 1), parts(2, 3))
    assert told.member_epoch == 1
    assert group.stay("b").assigned == NOTHING
    assert group.stay("a", parts(0, 1, 2)).member_epoch == 1  # It still has one of them.
    assert group.obey("a").member_epoch == 2
    assert group.stay("b").assigned == parts(2, 3)
    assert group.value.state is GroupState.STABLE


def test_who_does_not_give_up_partitions_in_time_is_removed(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.stay("a")
    assert group.value.deadline_ms == NOW + REVOKE_MS
    assert decisions.overdue(group.value, NOW + REVOKE_MS) == set()
    late = decisions.overdue(group.value, NOW + REVOKE_MS + 1)
    group.value = decisions.remove(group.value, late)
    assert group.value.state is GroupState.ASSIGNING
    assert group.stay("b").assigned == parts(0, 1, 2, 3)


def test_a_lost_answer_is_asked_for_again_with_the_epoch_before(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.stay("a")
    told = group.obey("a")
    again = group.beat(Heartbeat("a", 1, owned=told.assigned))
    assert again.member_epoch == 2
    with pytest.raises(FencedMemberEpochError, match="got member epoch 1, 'a' is at 2"):
        group.beat(Heartbeat("a", 1, owned=parts(0, 3)))
    with pytest.raises(FencedMemberEpochError):
        group.beat(Heartbeat("a", 1))


def test_a_late_heartbeat_of_the_epoch_before_confirms_nothing_of_a_newer_assignment(
    group: Group,
) -> None:
    group.join("a")
    group.join("b")
    group.stay("a")
    group.obey("a")
    group.stay("b")
    group.join("c")
    group.join("d")
    told = group.stay("a")
    assert (told.member_epoch, len(told.pending_revocation)) == (2, 1)
    with pytest.raises(FencedMemberEpochError):
        group.beat(Heartbeat("a", 1, owned=told.assigned))
    assert group["a"].pending_revocation == told.pending_revocation


def test_a_group_leaves_epoch_0_although_nothing_matches_yet(group: Group) -> None:
    nothing = group.join("a", subscribed_topic_names=None, subscribed_topic_regex="x", matched=())
    assert nothing.member_epoch == 1
    assert group.join("b", subscribed_topic_names=()).member_epoch == 1
    assert group.value.group_epoch == 1


def test_a_heartbeat_that_says_all_by_an_expression_is_full() -> None:
    beat = Heartbeat("a", 1, rebalance_timeout_ms=REVOKE_MS, owned=NOTHING)
    assert not beat.is_full
    assert replace(beat, subscribed_topic_names=()).is_full
    assert replace(beat, subscribed_topic_regex="t.*").is_full
    assert not replace(beat, subscribed_topic_regex="t.*", owned=None).is_full


def test_a_member_that_alone_read_a_topic_bumps_the_epoch_once_when_it_leaves(group: Group) -> None:
    group.topics["u"] = (2, 1)
    group.join("a")
    group.join("b", subscribed_topic_names=("u",))
    group.leave("b")
    assert group.stay("a").member_epoch == group.value.group_epoch == 3


@pytest.mark.parametrize("epoch", [2, 9])
def test_an_epoch_of_the_future_is_fenced(group: Group, epoch: int) -> None:
    group.join("a")
    with pytest.raises(FencedMemberEpochError, match="join again"):
        group.beat(Heartbeat("a", epoch))


def test_what_leaves_comes_to_the_others(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.leave("a")
    assert group.value.group_epoch == 3
    assert group.stay("b").assigned == parts(0, 1, 2, 3)
    group.leave("b")
    assert group.value.state is GroupState.EMPTY
    with pytest.raises(UnknownMemberIdError):
        group.beat(Heartbeat("b", 3))


def test_topics_that_appear_grow_or_go_are_shared_out_anew(group: Group) -> None:
    group.topics = {}
    assert group.join("a").assigned == NOTHING
    group.topics = {"t": (T, 2)}
    assert group.stay("a").assigned == parts(0, 1)
    group.topics = {"t": (T, 3)}
    assert group.stay("a").assigned == parts(0, 1, 2)
    group.topics = {"t": (9, 1)}  # Deleted and created again.
    assert group.stay("a").pending_revocation == parts(0, 1, 2)
    assert group.stay("a", NOTHING).assigned == {(9, 0)}
    epoch = group.value.group_epoch
    group.stay("a")
    assert group.value.group_epoch == epoch


def test_a_static_member_that_is_away_keeps_its_partitions(group: Group) -> None:
    group.join("a", "one")
    group.leave("a", for_a_while=True)
    assert group["a"].member_epoch == AWAY
    back = group.join("b", "one")
    assert (back.assigned, back.member_epoch) == (parts(0, 1, 2, 3), 1)
    with pytest.raises(FencedInstanceIdError, match="held by member 'b' now"):
        group.beat(Heartbeat("a", 1, "one"))
    assert group.value.group_epoch == 1


def test_a_static_member_comes_back_with_its_id(group: Group) -> None:
    """As Java's consumer does that polled too late."""
    group.join("a", "one")
    group.leave("a", for_a_while=True)
    back = group.join("a", "one")
    assert (back.member_id, back.assigned, back.member_epoch) == ("a", parts(0, 1, 2, 3), 1)


def test_an_instance_id_that_is_in_use_is_refused(group: Group) -> None:
    group.join("a", "one")
    for member_id in ("a", "b"):
        with pytest.raises(UnreleasedInstanceIdError, match="still held by member 'a'"):
            group.join(member_id, "one")
    with pytest.raises(UnknownMemberIdError, match="'two'"):
        group.beat(Heartbeat("a", 1, "two"))


def test_a_full_group_takes_nobody_else(group: Group) -> None:
    group.max_size = 1
    group.join("a")
    with pytest.raises(GroupMaxSizeReachedError, match="is 1"):
        group.join("b")
    group.stay("a")


def test_most_votes_choose_the_assignor_and_without_any_it_is_uniform(group: Group) -> None:
    group.join("a")
    assert decisions.assignor_of(group.value) == "uniform"
    group.join("b", server_assignor="range")
    assert decisions.assignor_of(group.value) == "range"


@pytest.mark.parametrize(
    "beat",
    [
        Heartbeat("", 1),
        Heartbeat("a", -3),
        Heartbeat("a", AWAY),
        Heartbeat("a", 0, subscribed_topic_names=("t",), owned=NOTHING),
        Heartbeat("a", 0, rebalance_timeout_ms=1, owned=NOTHING),
        Heartbeat("a", 0, rebalance_timeout_ms=1, subscribed_topic_names=("t",)),
        Heartbeat("a", 0, rebalance_timeout_ms=1, subscribed_topic_names=("t",), owned=parts(1)),
        Heartbeat("a", 1, group_instance_id=""),
        Heartbeat("a", 1, rack_id=""),
    ],
)
def test_a_heartbeat_that_lacks_what_it_needs_is_refused(beat: Heartbeat) -> None:
    with pytest.raises(InvalidRequestError, match="consumer_group_heartbeat: got"):
        decisions.check_heartbeat(beat)


def test_an_assignor_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnsupportedAssignorError, match="expected uniform or range"):
        decisions.check_heartbeat(Heartbeat("a", 1, server_assignor="sticky"))


@pytest.mark.parametrize(
    ("member_id", "epoch", "is_transactional", "error"),
    [
        ("a", 1, False, None),
        ("a", 2, False, StaleMemberEpochError),
        ("a", -1, False, StaleMemberEpochError),
        ("a", 2, True, IllegalGenerationError),
        ("z", 1, False, UnknownMemberIdError),
        ("", -1, False, UnknownMemberIdError),
        ("", -1, True, None),
    ],
)
def test_a_fenced_member_commits_nothing(
    group: Group, member_id: str, epoch: int, is_transactional: bool, error: type[Exception] | None
) -> None:
    group.join("a")
    check = decisions.check_commit
    if error is None:
        check(group.value, member_id, epoch, is_transactional=is_transactional)
        return
    with pytest.raises(error):
        check(group.value, member_id, epoch, is_transactional=is_transactional)


def test_anybody_commits_for_a_group_without_members() -> None:
    decisions.check_commit(ConsumerGroup("g"), "", -1, is_transactional=False)


def test_offsets_are_fetched_by_a_member_in_its_epoch_or_by_nobody(group: Group) -> None:
    group.join("a")
    decisions.check_fetch(group.value, None, -1)
    decisions.check_fetch(group.value, "a", 1)
    with pytest.raises(StaleMemberEpochError):
        decisions.check_fetch(group.value, "a", 2)
    with pytest.raises(UnknownMemberIdError):
        decisions.check_fetch(group.value, "", -1)


def test_a_subscribed_topic_is_one_by_name_or_by_expression(group: Group) -> None:
    group.join("a")
    group.join("b", subscribed_topic_names=(), subscribed_topic_regex="u", matched=(7,))
    for topic, number in (("t", T), ("u", 7)):
        with pytest.raises(GroupSubscribedToTopicError):
            decisions.check_unsubscribed(group.value, topic, number)
    decisions.check_unsubscribed(group.value, "v", 8)


ACTIONS = st.tuples(
    st.sampled_from(["join", "stay", "obey", "leave", "away", "overdue", "topics"]),
    st.integers(0, 3),
)


@given(st.lists(ACTIONS, max_size=40))
def test_no_partition_has_two_owners_and_all_are_owned_in_the_end(
    actions: list[tuple[str, int]],
) -> None:
    group, owned = Group(), dict[str, Partitions]()
    epochs = dict[str, int]()
    for action, which in actions:
        _act(group, action, which)
        before, owned = owned, {m.member_id: m.owned for m in group.value.members}
        every = [partition for some in owned.values() for partition in some]
        assert len(every) == len(set(every)), "owned twice"
        for member in group.value.members:
            if member.member_id in before and member.member_epoch > 0:
                assert member.member_epoch >= epochs.get(member.member_id, 0)
            epochs[member.member_id] = max(member.member_epoch, 0)
    group.value = decisions.remove(
        group.value, {m.member_id for m in group.value.members if m.member_epoch == AWAY}
    )
    if not group.value.members:
        return
    for _ in range(2 * len(group.value.members) + 4):
        for member in group.value.members:
            group.obey(member.member_id)
    assert group.value.state is GroupState.STABLE
    final = {partition for m in group.value.members for partition in m.assigned}
    assert final == {(T, number) for number in range(group.topics["t"][1])}
    assert all(m.state is MemberState.STABLE for m in group.value.members)


def _act(group: Group, action: str, which: int) -> None:
    member_id = "abcd"[which]
    known = group.value.member(member_id)
    is_away = known is not None and known.member_epoch == AWAY
    match action:
        case "topics":
            group.topics = {"t": (T, 4 + which)}
        case "overdue":
            late = decisions.overdue(group.value, NOW + REVOKE_MS + 1)
            group.value = decisions.remove(group.value, late)
        case "join" if known is None or is_away:
            group.join(member_id, f"i{which}" if which % 2 else None)
        case "stay" if known is not None and not is_away:
            group.stay(member_id)
        case "obey" if known is not None and not is_away:
            group.obey(member_id)
        case "leave" if known is not None:
            group.leave(member_id)
        case "away" if known is not None and known.group_instance_id and not is_away:
            group.leave(member_id, for_a_while=True)
