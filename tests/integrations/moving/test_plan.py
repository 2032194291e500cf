"""The plan of a move: values in, values out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eosdb import TopicPartition
from eosdb.integrations.moving.plan import (
    COMMIT,
    CREATE,
    END,
    FINISH,
    RELAY,
    Facts,
    MovingGroup,
    MovingTransaction,
    TopicHere,
    TopicThere,
    plan,
)

WHERE = "broker:9092"
HERE = TopicHere("orders", {"retention.ms": "-1"}, {0: 10, 1: 0}, {0: 2, 1: 0})
THERE = TopicThere(2, {"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
P0 = TopicPartition("orders", 0)
FACTS = Facts(WHERE, (HERE,))


def _done(facts: Facts) -> dict[str, bool]:
    return {step.action: step.done for step in plan(facts).steps}


def test_a_topic_is_created_with_its_partitions_and_settings() -> None:
    step = plan(FACTS).steps[0]
    assert (step.action, step.subject, step.done) == (CREATE, "orders", False)
    assert step.detail == "2 partitions, retention.ms=-1"
    assert _done(replace(FACTS, there={"orders": THERE}))[CREATE]


def test_what_is_to_be_relayed_is_counted_from_where_the_relay_stands() -> None:
    details = [step.detail for step in plan(FACTS).steps if step.action == RELAY]
    assert details == ["8 offsets to go"]
    relayed = replace(FACTS, there={"orders": THERE}, positions={P0: 7})
    details = [step.detail for step in plan(relayed).steps if step.action == RELAY]
    assert details == ["3 offsets to go"]


def test_open_transactions_and_groups_are_steps() -> None:
    groups = (MovingGroup("billing", 0, {P0: 4}),)
    steps = plan(
        replace(FACTS, groups=groups, open_transactions=(MovingTransaction("till"),))
    ).steps
    assert ("till", END) in [(step.subject, step.action) for step in steps]
    assert ("billing", COMMIT) in [(step.subject, step.action) for step in steps]


def test_a_move_that_is_through_has_nothing_left_to_do() -> None:
    moved = replace(HERE, moved_to=WHERE)
    after = Facts(
        WHERE, (moved,), {"orders": replace(THERE, is_empty=False)}, {P0: 10},
        (MovingGroup("billing", 1, {P0: 4}),), {"billing": MovingGroup("billing", 2, {P0: 9})},
    )  # fmt: skip
    assert plan(after).is_done
    assert not plan(after).obstacles
    assert not plan(replace(after, topics=(replace(HERE, moving_to=WHERE),))).is_done
    assert _done(after)[FINISH]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(FACTS, topics=()), "no topic to move"),
        (replace(FACTS, there={"orders": TopicThere(3)}), "2 partitions here and 3 in the cluster"),
        (replace(FACTS, there={"orders": TopicThere(1)}), "2 partitions here and 1 in the cluster"),
        (
            replace(FACTS, there={"orders": replace(THERE, is_empty=False)}),
            "the relay has written none there",
        ),
        (
            replace(
                FACTS, there={"orders": TopicThere(2, {"message.timestamp.type": "LogAppendTime"})}
            ),
            "would lose their times",
        ),
        (replace(FACTS, topics=(replace(HERE, moving_to="x:1"),)), "its move to x:1"),
        (replace(FACTS, groups=(MovingGroup("billing", 2, {P0: 4}),)), "billing has 2 members in the file"),
        (
            replace(FACTS, groups=(MovingGroup("b", 0, {P0: 4}, {P0: [4, 6]}),)),
            "group b was killed in the middle of orders-0: offset 4, 6 is unfinished",
        ),
        (
            replace(
                FACTS,
                groups=(MovingGroup("b", 0, {P0: 4}),),
                groups_there={"b": MovingGroup("b", 1, {P0: 4})},
            ),
            "b has 1 members in the cluster",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_named(facts: Facts, said: str) -> None:
    (found,) = plan(facts).obstacles
    assert said in found


def test_settings_that_differ_and_what_does_not_move_are_noted() -> None:
    there = TopicThere(2, {"retention.ms": "604800000", "cleanup.policy": "delete"})
    topic = replace(HERE, config={"retention.ms": "-1", "segment.ms": "9"})
    notes = "\n".join(
        plan(
            replace(
                FACTS, topics=(topic,), there={"orders": there}, transactional_ids=2, acls=3,
                users=1, others=("drafts",),
            )
        ).notes
    )  # fmt: skip
    for said in (
        "retention.ms is -1 here and 604800000 in the cluster",
        "does not know the setting segment.ms",
        "1 topics are not moved: drafts",
        "2 transactional ids need no move",
        "3 ACLs are not moved",
        "1 users are not moved",
    ):
        assert said in notes


def test_a_list_in_another_order_is_the_same_setting() -> None:
    topic = replace(HERE, config={"cleanup.policy": "compact,delete"})
    there = TopicThere(2, {"cleanup.policy": "delete, compact"})
    assert plan(replace(FACTS, topics=(topic,), there={"orders": there})).notes == ()
