"""Who gets what: the tables are facts from Kafka's own tests of its assignors. In one row another partition
moves than Kafka's GeneralAssignmentBuilder chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.client.consumer.assignors import ASSIGNORS, Assignment, MemberSubscription
from eosdb.model.protocol.consumer_protocol import Subscription
from eosdb.model.values import TopicPartition
from tests.cases import each

Told = dict[str, str]
"""`{"c1": "t1-0 t1-1"}`: partitions by member, short."""


def members(
    topics: Mapping[str, str],
    owned: Told | None = None,
    generations: Mapping[str, int] | None = None,
    static: Mapping[str, str] | None = None,
) -> list[MemberSubscription]:
    """Members by name, with what they subscribe to and what they own from which generation."""
    return [
        MemberSubscription(
            name,
            (static or {}).get(name),
            Subscription(
                tuple(wanted.split()),
                tuple(partitions((owned or {}).get(name, ""))),
                (generations or {}).get(name, 1 if owned and name in owned else -1),
            ),
        )
        for name, wanted in topics.items()
    ]


def partitions(told: str) -> list[TopicPartition]:
    pairs = (text.rpartition("-") for text in told.split())
    return [TopicPartition(topic, int(number)) for topic, _, number in pairs]


def told(assignment: Assignment) -> Told:
    return {
        name: " ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(tps))
        for name, tps in assignment.items()
    }


def assign(name: str, group: Sequence[MemberSubscription], counts: Mapping[str, int]) -> Assignment:
    return ASSIGNORS[name].assign(group, counts)


RANGE: list[tuple[str, dict[str, str], dict[str, int], Told]] = [
    ("one consumer without topics", {"c1": ""}, {}, {"c1": ""}),
    ("one consumer and a topic that is not there", {"c1": "t1"}, {}, {"c1": ""}),
    ("one consumer, one topic", {"c1": "t1"}, {"t1": 3}, {"c1": "t1-0 t1-1 t1-2"}),
    (
        "only what is subscribed to is given",
        {"c1": "t1"}, {"t1": 3, "other": 3}, {"c1": "t1-0 t1-1 t1-2"},
    ),
    (
        "one consumer, several topics",
        {"c1": "t1 t2"}, {"t1": 1, "t2": 2}, {"c1": "t1-0 t2-0 t2-1"},
    ),
    ("more consumers than partitions", {"c1": "t1", "c2": "t1"}, {"t1": 1}, {"c1": "t1-0", "c2": ""}),
    ("one partition each", {"c1": "t1", "c2": "t1"}, {"t1": 2}, {"c1": "t1-0", "c2": "t1-1"}),
    (
        "different topics",
        {"c1": "t1", "c2": "t1 t2", "c3": "t1"}, {"t1": 3, "t2": 2},
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
    ),
    (
        "uneven topics: the first consumer gets the extra partition of each",
        {"c1": "t1 t2", "c2": "t1 t2"}, {"t1": 3, "t2": 3},
        {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"},
    ),
]  # fmt: skip

ROUND_ROBIN: list[tuple[str, dict[str, str], dict[str, int], Told]] = [
    ("one consumer without topics", {"c1": ""}, {}, {"c1": ""}),
    ("one consumer, one topic", {"c1": "t1"}, {"t1": 3}, {"c1": "t1-0 t1-1 t1-2"}),
    ("more consumers than partitions", {"c1": "t1", "c2": "t1"}, {"t1": 1}, {"c1": "t1-0", "c2": ""}),
    (
        "uneven topics are dealt like cards",
        {"c1": "t1 t2", "c2": "t1 t2"}, {"t1": 3, "t2": 3},
        {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"},
    ),
    (
        "different topics",
        {"c1": "t1", "c2": "t1 t2", "c3": "t1"}, {"t1": 3, "t2": 2},
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
    ),
    (
        "a large topic for one of them",
        {"c1": "t1", "c2": "t1 t2"}, {"t1": 1, "t2": 100},
        {"c1": "t1-0", "c2": " ".join(f"t2-{i}" for i in range(100))},
    ),
]  # fmt: skip

STICKY: list[tuple[str, dict[str, str], Told, dict[str, int], Told]] = [
    ("nobody owns anything: dealt in turn", {"c1": "t1 t2", "c2": "t1 t2"}, {}, {"t1": 3, "t2": 3},
     {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}),
    ("more consumers than partitions", {"c1": "t1", "c2": "t1"}, {}, {"t1": 1}, {"c1": "t1-0", "c2": ""}),
    ("who comes gets what is given up, but not in the same step", {"c1": "t1", "c2": "t1"},
     {"c1": "t1-0 t1-1 t1-2"}, {"t1": 3}, {"c1": "t1-0 t1-1", "c2": ""}),
    ("and in the next step it is there", {"c1": "t1", "c2": "t1"},
     {"c1": "t1-0 t1-1", "c2": ""}, {"t1": 3}, {"c1": "t1-0 t1-1", "c2": "t1-2"}),
    ("what somebody left behind is free at once", {"c2": "t1"}, {"c2": "t1-1"}, {"t1": 3},
     {"c2": "t1-0 t1-1 t1-2"}),
    ("who stays keeps", {"c1": "t1", "c2": "t1", "c3": "t1"}, {"c1": "t1-0 t1-3", "c2": "t1-1 t1-4"},
     {"t1": 6}, {"c1": "t1-0 t1-3", "c2": "t1-1 t1-4", "c3": "t1-2 t1-5"}),
    ("a topic that is gone is forgotten", {"c1": "t1 t2", "c2": "t1 t2"},
     {"c1": "t1-0 t2-1", "c2": "t2-0"}, {"t2": 3}, {"c1": "t2-1 t2-2", "c2": "t2-0"}),
    ("a topic that is new is shared", {"c1": "t1 t2", "c2": "t1 t2"}, {"c1": "t1-0", "c2": "t1-1"},
     {"t1": 2, "t2": 2}, {"c1": "t1-0 t2-0", "c2": "t1-1 t2-1"}),
    ("different topics: as even as wishes allow", {"c1": "t1", "c2": "t1 t2", "c3": "t1"}, {},
     {"t1": 3, "t2": 2}, {"c1": "t1-0 t1-2", "c2": "t2-0 t2-1", "c3": "t1-1"}),
    ("different topics, large one for one of them", {"c1": "t1", "c2": "t1 t2"}, {},
     {"t1": 1, "t2": 100}, {"c1": "t1-0", "c2": " ".join(f"t2-{i}" for i in range(100))}),
    ("different topics: what moves is withheld (Kafka moves t1-0)", {"c1": "t1", "c2": "t1 t2"},
     {"c2": "t1-0 t1-1 t2-0"}, {"t1": 2, "t2": 1}, {"c1": "", "c2": "t1-0 t2-0"}),
    ("a topic unsubscribed is free for the others when it has been given up", {"c1": "t2", "c2": "t1 t2"},
     {"c1": "t1-0 t2-0", "c2": "t2-1"}, {"t1": 1, "t2": 2}, {"c1": "t2-0", "c2": "t2-1"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("topics", "counts", "expected"), [c[1:] for c in RANGE], ids=[c[0] for c in RANGE]
)
def test_range(topics: dict[str, str], counts: dict[str, int], expected: Told) -> None:
    assert told(assign("range", members(topics), counts)) == expected


@pytest.mark.parametrize(
    ("topics", "counts", "expected"), [c[1:] for c in ROUND_ROBIN], ids=[c[0] for c in ROUND_ROBIN]
)
def test_round_robin(topics: dict[str, str], counts: dict[str, int], expected: Told) -> None:
    assert told(assign("roundrobin", members(topics), counts)) == expected


@each(("topics", "owned", "counts", "expected"), [c[1:] for c in STICKY])
def test_cooperative_sticky(
    topics: dict[str, str], owned: Told, counts: dict[str, int], expected: Told
) -> None:
    assert told(assign("cooperative-sticky", members(topics, owned), counts)) == expected


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_keep_their_order_whatever_their_member_ids_are(name: str) -> None:
    static = {"z": "1", "y": "2", "x": "3"}
    group = members({"x": "t", "y": "t", "z": "t", "a": "t"}, static=static)
    expected = {"z": "t-0", "y": "t-1", "x": "t-2", "a": "t-3"}
    assert told(assign(name, group, {"t": 4})) == expected


def test_of_two_claims_the_newer_generations_counts() -> None:
    owned = {"c1": "t-0 t-1", "c2": "t-0 t-2"}
    group = members({"c1": "t", "c2": "t"}, owned, {"c1": 1, "c2": 2})
    expected = {"c1": "t-1", "c2": "t-0 t-2"}
    assert told(assign("cooperative-sticky", group, {"t": 3})) == expected


def test_of_two_claims_of_one_generation_none_counts_and_the_partition_is_withheld() -> None:
    owned = {"c1": "t-0 t-1", "c2": "t-0 t-2"}
    group = members({"c1": "t", "c2": "t"}, owned, {"c1": 1, "c2": 1})
    assert told(assign("cooperative-sticky", group, {"t": 3})) == {"c1": "t-1", "c2": "t-2"}


# -- what holds for every group -----------------------------------------------------------------

TOPICS = ["t1", "t2", "t3"]
some_topics = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True).map(tuple)
wishes = st.dictionaries(st.sampled_from([f"m{i}" for i in range(6)]), some_topics, min_size=1)
sizes = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


def group_of(
    topics: Mapping[str, tuple[str, ...]], owned: Assignment, generation: int
) -> list[MemberSubscription]:
    return [
        MemberSubscription(
            name,
            None,
            Subscription(wanted, tuple(owned.get(name, ())), generation if name in owned else -1),
        )
        for name, wanted in topics.items()
    ]


def settled(
    topics: Mapping[str, tuple[str, ...]], counts: Mapping[str, int], owned: Assignment
) -> Assignment:
    """What cooperative steps lead to; no step gives away what another member still owns."""
    for generation in range(1, 6):
        after = assign("cooperative-sticky", group_of(topics, owned, generation), counts)
        for name, tps in after.items():
            others = {tp for other, theirs in owned.items() if other != name for tp in theirs}
            assert not others.intersection(tps)
        if after == owned:
            return after
        owned = after
    raise AssertionError("the group does not come to rest")


def check_shared_out(
    assignment: Assignment, topics: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> None:
    wanted = {topic for mine in topics.values() for topic in mine}
    everything = sorted(TopicPartition(t, p) for t in wanted for p in range(counts[t]))
    assert sorted(tp for tps in assignment.values() for tp in tps) == everything
    assert all(tp.topic in topics[name] for name, tps in assignment.items() for tp in tps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(wishes, sizes)
def test_every_subscribed_partition_is_given_once_to_somebody_who_wants_it(
    name: str, topics: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    check_shared_out(assign(name, group_of(topics, {}, 0), counts), topics, counts)


@pytest.mark.slow
@given(wishes, wishes, sizes, sizes)
def test_cooperative_steps_come_to_rest_with_everything_shared_out(
    before: dict[str, tuple[str, ...]],
    after: dict[str, tuple[str, ...]],
    few: dict[str, int],
    many: dict[str, int],
) -> None:
    first = settled(before, few, {})
    check_shared_out(first, before, few)
    staying = {name: tps for name, tps in first.items() if name in after}
    owned = {
        name: [tp for tp in tps if tp.topic in after[name] and tp.partition < many[tp.topic]]
        for name, tps in staying.items()
    }
    check_shared_out(settled(after, many, owned), after, many)


@given(st.integers(1, 6), sizes, st.integers(1, 6))
def test_members_that_want_the_same_differ_by_one_partition_at_most(
    few: int, counts: dict[str, int], many: int
) -> None:
    owned: Assignment = {}
    for size in (few, many):
        topics = {f"m{i}": tuple(TOPICS) for i in range(size)}
        owned = settled(topics, counts, {n: tps for n, tps in owned.items() if n in topics})
        shares = [len(tps) for tps in owned.values()]
        assert max(shares) - min(shares) <= 1


@pytest.mark.slow
@given(wishes, sizes)
def test_a_group_that_has_come_to_rest_stays_as_it_is(
    topics: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    rest = settled(topics, counts, {})
    assert assign("cooperative-sticky", group_of(topics, rest, 9), counts) == rest
