"""Who gets what: each partition to one, as evenly as the subscriptions
allow, and with as few changes as that takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.model.assignors import (
    Assignment,
    Subscriber,
    assign_ranges,
    assign_round_robin,
    assign_uniformly,
)

pytestmark = pytest.mark.slow

Assign = Callable[[Collection[Subscriber[int]], Mapping[int, int]], Assignment[int]]
TOPICS = st.dictionaries(st.integers(0, 4), st.integers(0, 6), min_size=1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber[int]], dict[int, int]]:
    topics = draw(TOPICS)
    count = draw(st.integers(1, 5))
    every = [(topic, number) for topic, size in topics.items() for number in range(size)]
    owner = {one: draw(st.integers(-1, count - 1)) for one in every}
    chosen = st.sets(st.sampled_from(sorted(topics)))
    subscriptions = draw(st.one_of(st.lists(chosen, min_size=count, max_size=count), st.just([])))
    subscribers = [
        Subscriber(
            f"m{i}",
            subscriptions[i] if subscriptions else set(topics),
            frozenset(one for one in every if owner[one] == i),
        )
        for i in range(count)
    ]
    return subscribers, topics


@pytest.mark.parametrize("assign", [assign_ranges, assign_round_robin, assign_uniformly])
@given(groups())
def test_each_partition_goes_to_one_of_its_subscribers(
    assign: Assign, group: tuple[list[Subscriber[int]], dict[int, int]]
) -> None:
    subscribers, topics = group
    result = assign(subscribers, topics)
    wanted = {topic for one in subscribers for topic in one.topics}
    every = sorted((t, number) for t in wanted & topics.keys() for number in range(topics[t]))
    assert sorted(one for some in result.values() for one in some) == every
    for one in subscribers:
        assert {topic for topic, _ in result[one.member_id]} <= set(one.topics)


@given(groups())
def test_nobody_could_pass_a_partition_on_to_make_it_more_even(
    group: tuple[list[Subscriber[int]], dict[int, int]],
) -> None:
    subscribers, topics = group
    result = assign_uniformly(subscribers, topics)
    for giver in subscribers:
        reached, waiting = {giver.member_id}, [giver.member_id]
        while waiting:
            held = {topic for topic, _ in result[waiting.pop()]}
            new = {
                one.member_id
                for one in subscribers
                if one.member_id not in reached and held & set(one.topics)
            }
            reached |= new
            waiting += new
        for taker in reached:
            assert len(result[giver.member_id]) - len(result[taker]) <= 1


@given(st.integers(0, 30), st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_with_one_subscription_as_few_partitions_move_as_can_be(
    free: int, loads: list[int]
) -> None:
    total = sum(loads) + free
    subscribers, start = list[Subscriber[int]](), 0
    for i, load in enumerate(loads):
        held = frozenset((1, number) for number in range(start, start + load))
        subscribers.append(Subscriber(f"m{i}", {1}, held))
        start += load
    result = assign_uniformly(subscribers, {1: total})
    assert {len(some) for some in result.values()} <= {
        total // len(loads),
        -(-total // len(loads)),
    }
    least, extra = divmod(total, len(loads))
    by_load = sorted(loads, reverse=True)
    must = sum(max(0, load - least - (i < extra)) for i, load in enumerate(by_load))
    assert sum(len(one.held - result[one.member_id]) for one in subscribers) == must


@given(groups())
def test_what_was_assigned_stays_as_it_is(
    group: tuple[list[Subscriber[int]], dict[int, int]],
) -> None:
    subscribers, topics = group
    for assign in (assign_uniformly, assign_ranges):
        result = assign(subscribers, topics)
        again = [Subscriber(s.member_id, s.topics, result[s.member_id]) for s in subscribers]
        assert assign(again, topics) == result


def test_ranges_cut_topics_alike_and_put_static_members_first() -> None:
    members = [Subscriber("a", {1, 2}), Subscriber("z", {1, 2}, frozenset(), "first")]
    assert assign_ranges(members, {1: 3, 2: 3}) == {
        "z": frozenset({(1, 0), (1, 1), (2, 0), (2, 1)}),
        "a": frozenset({(1, 2), (2, 2)}),
    }


def test_a_second_member_gets_half_and_the_first_keeps_the_rest() -> None:
    held = frozenset((1, number) for number in range(4))
    result = assign_uniformly([Subscriber("a", {1}, held), Subscriber("b", {1})], {1: 4})
    assert sorted(result["a"]) == [(1, 0), (1, 1)]


def test_ten_thousand_partitions_are_levelled_in_few_steps() -> None:
    topics = {1: 10_000}
    result = assign_uniformly([Subscriber("m00", {1})], topics)
    members = [Subscriber(f"m{i:02}", {1}, result.get(f"m{i:02}", frozenset())) for i in range(50)]
    after = assign_uniformly(members, topics)
    assert {len(some) for some in after.values()} == {200}
    assert after["m00"] <= result["m00"]
