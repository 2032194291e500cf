"""What requests make of a group: the classic protocol, the new one, and a group that changes over.

One table for tests of decisions, broker and wire. The rules are Kafka 4.4.0's (ClassicGroup,
GroupMetadataManager), but for a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from eosdb.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from tests.coordinator.groups.steps import (
    Beat,
    Commit,
    DeleteOffset,
    Fetch,
    Hello,
    Join,
    Leave,
    Row,
    Step,
    Sync,
    Topic,
    Wait,
    enter,
)

GONE, NO_GROUP = UnknownMemberIdError.name, GroupIdNotFoundError.name
ILLEGAL, STALE = IllegalGenerationError.name, StaleMemberEpochError.name
REBALANCING = RebalanceInProgressError.name
INCONSISTENT, INVALID = "INCONSISTENT_GROUP_PROTOCOL", "INVALID_REQUEST"
FENCED_INSTANCE, FENCED, HELD = (
    "FENCED_INSTANCE_ID", "FENCED_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID",
)  # fmt: skip
SUBSCRIBED = "GROUP_SUBSCRIBED_TO_TOPIC"
OK, WAITS, NONE = "ok", "waits", "none"
Steps = tuple[Step, ...]

# fmt: off
# -- the classic protocol ----------------------------------------------------------------------------

FORMING: Steps = (Join("a"),)
ALONE: Steps = (*FORMING, Sync("a", "a=0123"))
SECOND: Steps = (*ALONE, Join("b"))
FORMED: Steps = (*SECOND, Join("a"))
PAIR: Steps = (*FORMED, Sync("a", "a=01 b=23"))
THIRD: Steps = (*PAIR, Join("c"))
STATIC: Steps = (*ALONE, Join("b", "w"), Join("a"), Sync("a", "a=01 b=23"))
"""The second is the static member "w"."""
TAKEN: Steps = (*STATIC, Join("b2", "w"))
LEADING: Steps = (Join("a", "w"), Sync("a", "a=0123"), Join("b"), Join("a", "w"), Sync("a", "a=01 b=23"))
MISSED: Steps = (*STATIC, Join("c"), Join("a"), Wait(60_001))
"""The static member has not joined again in time."""
SHARED_OUT: Steps = (*MISSED, Sync("a", "a=0 b=1 c=2"))
IS_SHARED_OUT = "Stable 3 a=0 b=1 c=2"
IS_PAIR, IS_ALONE, IS_STATIC = "Stable 2 a=01 b=23", "Stable 1 a=0123", "Stable 2 a=01 b2=23"
IS_SECOND, IS_FORMED = "PreparingRebalance 1 a=0123 b=", "CompletingRebalance 2 a=0123 b="
IS_THIRD = "PreparingRebalance 2 a=01 b=23 c="
SHORT: Steps = (Join("a", session_ms=10_000), Sync("a", "a=0123"))
PATIENT: Steps = (
    Join("a", rebalance_ms=90_000), Sync("a"), Join("b", rebalance_ms=10_000),
    Join("a", rebalance_ms=90_000), Sync("a", "a=01 b=23"), Join("c", rebalance_ms=5_000),
)
BOTH = "range roundrobin"

CLASSIC = (
    Row("the first to join leads", (), Join("a"), "1 range, a leads", "CompletingRebalance 1 a="),
    Row("its sync makes the group stable", FORMING, Sync("a", "a=0123"), "0123", IS_ALONE),
    Row("a second one waits for the first", ALONE, Join("b"), WAITS, IS_SECOND),
    Row("and when it asks again", SECOND, Join("b"), WAITS, IS_SECOND),
    Row("the first is told to join again", SECOND, Beat("a"), REBALANCING, IS_SECOND),
    Row("also by its sync", SECOND, Sync("a"), REBALANCING, IS_SECOND),
    Row("its join forms the generation", SECOND, Join("a"), "2 range, a leads", IS_FORMED),
    Row("of which the second hears", FORMED, Join("b"), "2 range, a leads", IS_FORMED),
    Row("and the leader once more", FORMED, Join("a"), "2 range, a leads", IS_FORMED),
    Row("a formed generation is no rebalance", FORMED, Beat("b"), OK, IS_FORMED),
    Row("a follower's sync waits and assigns nothing", FORMED, Sync("b", "b=0123"), WAITS, IS_FORMED),
    Row("the leader's sync assigns", FORMED, Sync("a", "a=01 b=23"), "01", IS_PAIR),
    Row("the follower's share is there", PAIR, Sync("b"), "23", IS_PAIR),
    Row("a second sync of the leader assigns nothing", PAIR, Sync("a", "a=23 b=01"), "01", IS_PAIR),
    Row("a follower that asks again changes nothing", PAIR, Join("b"), "2 range, a leads", IS_PAIR),
    Row("the leader that joins again begins a rebalance", PAIR, Join("a"), WAITS,
        "PreparingRebalance 2 a=01 b=23"),
    Row("a follower that wants more begins one", PAIR, Join("b", topics="t u"), WAITS,
        "PreparingRebalance 2 a=01 b=23"),
    Row("who is alone forms the next at once", ALONE, Join("a"), "2 range, a leads",
        "CompletingRebalance 2 a=0123"),
    # Deadlines.
    Row("a rebalance waits until its deadline", (*THIRD, Join("b"), Wait(60_000)), Join("c"), WAITS,
        IS_THIRD),
    Row("and leaves behind who has not joined then", (*THIRD, Join("b"), Wait(60_001)), Join("c"),
        "3 range, b leads", "CompletingRebalance 3 b=23 c="),
    Row("a leader may sync until the deadline", (*FORMED, Wait(60_000)), Join("b"), "2 range, a leads",
        IS_FORMED),
    Row("and is replaced after it", (*FORMED, Wait(60_001)), Join("b"), "3 range, b leads",
        "CompletingRebalance 3 b="),
    Row("no deadline is left once it has synced", (*PAIR, Wait(60_001)), Beat("a"), OK, IS_PAIR),
    Row("the longest rebalance time-out counts", (*PATIENT, Wait(90_000)), Join("c"), WAITS, IS_THIRD),
    Row("and joins do not extend it",
        (*PATIENT, Wait(50_000), Join("b", rebalance_ms=10_000), Wait(40_001)), Join("c"),
        "3 range, b leads", "CompletingRebalance 3 b=23 c="),
    # Sessions.
    Row("a session lasts its time-out", (*SHORT, Wait(10_000)), Beat("a"), OK, IS_ALONE),
    Row("and no longer", (*SHORT, Wait(10_001)), Beat("a"), GONE, "Empty 2"),
    Row("a heartbeat renews it", (*SHORT, Wait(9_000), Beat("a"), Wait(9_000)), Beat("a"), OK, IS_ALONE),
    Row("who is removed cannot join with its id", (*SHORT, Wait(10_001)), Join("a", is_known=True), GONE,
        "Empty 2"),
    # Leaving.
    Row("when one leaves the others begin a rebalance", PAIR, Leave("b"), OK, "PreparingRebalance 2 a=01"),
    Row("when the leader leaves as well", PAIR, Leave("a"), OK, "PreparingRebalance 2 b=23"),
    Row("and another leads", (*PAIR, Leave("a")), Join("b"), "3 range, b leads",
        "CompletingRebalance 3 b=23"),
    Row("when the last one leaves the group is empty", ALONE, Leave("a"), OK, "Empty 2"),
    Row("and takes any assignor", (*ALONE, Leave("a")), Join("b", wants="roundrobin"),
        "3 roundrobin, b leads", "CompletingRebalance 3 b="),
    Row("who was waited for may leave", SECOND, Leave("a"), OK, "CompletingRebalance 2 b="),
    Row("who has left cannot leave", (*PAIR, Leave("b")), Leave("b"), GONE, "PreparingRebalance 2 a=01"),
    Row("an instance leaves by its name", STATIC, Leave("", "w"), OK, "PreparingRebalance 2 a=01"),
    Row("which must be somebody's", STATIC, Leave("", "x"), GONE, IS_PAIR),
    Row("and not somebody else's", STATIC, Leave("x", "w"), FENCED_INSTANCE, IS_PAIR),
    # What does not fit.
    Row("an assignor in common is needed", ALONE, Join("b", wants="roundrobin"), INCONSISTENT, IS_ALONE),
    Row("and the same type", ALONE, Join("b", kind="connect"), INCONSISTENT, IS_ALONE),
    Row("and any type", (), Join("b", kind=""), INCONSISTENT, NONE),
    Row("and any assignor", (), Join("b", wants=""), INCONSISTENT, NONE),
    Row("also by a sole member", ALONE, Join("a", wants="roundrobin"), INCONSISTENT, IS_ALONE),
    Row("which may not change its type either", ALONE, Join("a", kind="connect"), INCONSISTENT, IS_ALONE),
    Row("but support more", ALONE, Join("a", wants="range x"), "2 range, a leads",
        "CompletingRebalance 2 a=0123"),
    Row("who does not fit learns it before its id is looked at", ALONE,
        Join("x", kind="connect", is_known=True),
        INCONSISTENT, IS_ALONE),
    Row("a sync names the assignor", FORMING, Sync("a", name="sticky"), INCONSISTENT,
        "CompletingRebalance 1 a="),
    Row("and the type", FORMING, Sync("a", kind="connect"), INCONSISTENT, "CompletingRebalance 1 a="),
    Row("the past generation is refused", ALONE, Beat("a", 0), ILLEGAL, IS_ALONE),
    Row("and a future one", ALONE, Beat("a", 2), ILLEGAL, IS_ALONE),
    Row("also of a sync", ALONE, Sync("a", generation=0), ILLEGAL, IS_ALONE),
    Row("also of a future one", ALONE, Sync("a", generation=2), ILLEGAL, IS_ALONE),
    *(
        Row(f"{generation} is none: {request}", STATIC, request, answer, IS_PAIR)
        for generation in (-1, -2, -(2**31))
        for request, answer in (
            (Beat("b", generation), ILLEGAL), (Sync("b", generation=generation), ILLEGAL),
            (Commit("b", generation), ILLEGAL), (Commit("", generation), GONE),
            (Commit("", generation, "w"), FENCED_INSTANCE),
        )
    ),
    Row("nobody's commit has any generation below 0", (), Commit("", -(2**31)), OK, "Empty 0"),
    Row("a stranger is no member", ALONE, Beat("x", 1), GONE, IS_ALONE),
    Row("nor is one of no group", (), Beat("x", 1), GONE, NONE),
    Row("an id that was never given out is unknown", ALONE, Join("x", is_known=True), GONE, IS_ALONE),
    Row("an instance that nobody has is unknown", STATIC, Beat("a", instance="x"), GONE, IS_PAIR),
    # Static members (KIP-345).
    Row("a static member returns without a rebalance", STATIC, Join("b2", "w"), "2 range, a leads",
        IS_STATIC),
    Row("and has what it had", TAKEN, Sync("b2", instance="w"), "23", IS_STATIC),
    Row("its former self is fenced", TAKEN, Beat("b", 2, "w"), FENCED_INSTANCE, IS_STATIC),
    Row("also when it joins", TAKEN, Join("b", "w", is_known=True), FENCED_INSTANCE, IS_STATIC),
    Row("also when it commits", TAKEN, Commit("b", 2, "w"), FENCED_INSTANCE, IS_STATIC),
    Row("itself is not", TAKEN, Beat("b2", instance="w"), OK, IS_STATIC),
    Row("a static leader that returns leads", LEADING, Join("a2", "w"), "2 range, a2 leads",
        "Stable 2 a2=01 b=23"),
    Row("one that wants more begins a rebalance", STATIC, Join("b2", "w", topics="t u"), WAITS,
        "PreparingRebalance 2 a=01 b2=23"),
    Row("one that owns something does not", STATIC, Join("b2", "w", owns="23"), "2 range, a leads",
        IS_STATIC),
    Row("one that turns the vote does", (Join("a", "w", wants=BOTH), Sync("a")),
        Join("a2", "w", wants="roundrobin range"),
        "2 roundrobin, a2 leads", "CompletingRebalance 2 a2="),
    Row("a static member is not left behind", MISSED, Join("c"),
        "3 range, a leads", "CompletingRebalance 3 a=01 b=23 c="),
    Row("and is in the generation once it asks", MISSED, Join("b", "w"), "3 range, a leads",
        "CompletingRebalance 3 a=01 b=23 c="),
    Row("also when all have their shares", SHARED_OUT, Join("b", "w"), "3 range, a leads", IS_SHARED_OUT),
    Row("also under another id", SHARED_OUT, Join("b2", "w"), "3 range, a leads", "Stable 3 a=0 b2=1 c=2"),
    Row("it need not name its instance", STATIC, Beat("b"), OK, IS_PAIR),
    Row("and keeps it when it joins without it", (*STATIC, Join("b", topics="t u")),
        Beat("b", instance="w"),
        REBALANCING, "PreparingRebalance 2 a=01 b=23"),
    # Deleting offsets.
    Row("offsets that a member reads stay", ALONE, DeleteOffset("t"), SUBSCRIBED, IS_ALONE),
    Row("others go", (Topic("u", 1), *ALONE), DeleteOffset("u"), OK, IS_ALONE),
    Row("who does not say what it reads reads all", (Join("a", says=b"?"),), DeleteOffset("t"), SUBSCRIBED,
        "CompletingRebalance 1 a="),
    Row("who is no consumer keeps all", (Join("a", kind="connect"),), DeleteOffset("t"), "NON_EMPTY_GROUP",
        "CompletingRebalance 1 a="),
    Row("also of who is no consumer", (Join("a", kind="connect"), Leave("a")), DeleteOffset("t"), OK,
        "Empty 2"),
    Row("when all have left they go", (*ALONE, Leave("a")), DeleteOffset("t"), OK, "Empty 2"),
)

ELECTIONS = (
    ((BOTH,), "range"),
    ((BOTH, "roundrobin range"), "roundrobin"),
    ((BOTH, BOTH, "roundrobin range"), "range"),
    (("roundrobin range", BOTH, "range"), "range"),
    (("x roundrobin range", BOTH, "roundrobin range"), "roundrobin"),
)
"""What members support, by preference, and the assignor that is elected: each votes for its first that all
support, and the last name wins a draw."""

# -- the new protocol --------------------------------------------------------------------------------

ONE: Steps = (enter("a"),)
TWO: Steps = (*ONE, enter("b"))
TOLD: Steps = (*TWO, Hello("a"))
GAVE: Steps = (*TOLD, Hello("a", owns="01"))
SHARED: Steps = (*GAVE, Hello("b"))
LATE: Steps = (*SHARED, enter("c"), enter("d"), Hello("a"))
IS_ONE, IS_TWO, IS_TOLD = "Stable 2 a@2=0123", "Reconciling 3 a@2=0123 b@3=", "Reconciling 3 a@2=01 b@3="
IS_GIVEN, IS_SHARED = "Reconciling 3 a@3=01 b@3=", "Stable 3 a@3=01 b@3=23"
IS_LATE = "Reconciling 5 a@3=0 b@3=23 c@4= d@5="
HERE: Steps = (enter("a", "i"),)
AWAY: Steps = (*HERE, Hello("a", -2, instance="i"))
BACK: Steps = (*AWAY, enter("b", "i"))
OWES: Steps = (*HERE, enter("b"), Hello("a", instance="i"), Hello("a", -2, instance="i"))
"""Away while it was to give up half."""
NOTHING_YET: Steps = (enter("a", topics=None, regex="x"),)
UNEVEN: Steps = (
    Topic("x", 3), Topic("y", 3), Hello("a", 0, "", "x y", assignor="range", rebalance_ms=30_000),
    enter("b", topics="x y"),
)
ANEW: Steps = (*ONE, Topic("t", 0), Topic("t", 1))

CONSUMER = (
    Row("the first member gets all partitions", (), enter("a"), "2: 0123", IS_ONE),
    Row("and hears of them once", ONE, Hello("a"), "2", IS_ONE),
    Row("unless it says all", ONE, Hello("a", 2, "0123", "t", rebalance_ms=30_000), "2: 0123", IS_ONE),
    Row("a second one gets what is free", ONE, enter("b"), "3: nothing", IS_TWO),
    Row("the first is told what to give up", TWO, Hello("a"), "2: 01", IS_TOLD),
    Row("which is not free before", TOLD, Hello("b"), "3", IS_TOLD),
    Row("a heartbeat that says nothing of it does not give it up", TOLD, Hello("a"), "2", IS_TOLD),
    Row("nor one that has some of it", TOLD, Hello("a", owns="012"), "2", IS_TOLD),
    Row("nor one that has that alone", TOLD, Hello("a", owns="2"), "2", IS_TOLD),
    Row("it has given up what it does not name", TOLD, Hello("a", owns="01"), "3", IS_GIVEN),
    Row("and that is the other's", GAVE, Hello("b"), "3: 23", IS_SHARED),
    Row("who gives up more than it must is told the rest", TWO, Hello("a", owns=""), "3: 01", IS_GIVEN),
    Row("a lost answer is asked for again", GAVE, Hello("a", 2, "01"), "3", IS_GIVEN),
    Row("but not by who has more than that", GAVE, Hello("a", 2, "03"), FENCED, IS_GIVEN),
    Row("nor by who does not say what it has", GAVE, Hello("a", 2), FENCED, IS_GIVEN),
    Row("a late heartbeat confirms nothing newer", LATE, Hello("a", 2, "0"), FENCED, IS_LATE),
    Row("who must give up more when it has given up stays in its epoch", (*TOLD, enter("c"), enter("d")),
        Hello("a", owns="01"), "2: 0", "Reconciling 5 a@2=0 b@3= c@4= d@5="),
    Row("what it has given up is its own again if nobody is to have it", (*TOLD, Hello("b", -1)),
        Hello("a", owns="01"), "4: 0123", "Stable 4 a@4=0123"),
    # A known member joins again and owns nothing.
    Row("it is told once more what it has", SHARED, enter("a"), "3: 01", IS_SHARED),
    Row("and has given up what it must", TOLD, enter("a"), "3: 01", IS_GIVEN),
    Row("the next epoch is fenced", ONE, Hello("a", 3), FENCED, IS_ONE),
    Row("and any", ONE, Hello("a", 10), FENCED, IS_ONE),
    Row("a stranger is unknown", ONE, Hello("x", 2), GONE, IS_ONE),
    Row("no group is not found", (), Hello("a", 5), NO_GROUP, NONE),
    Row("also by who leaves", (), Hello("a", -1), NO_GROUP, NONE),
    Row("a classic group is not found", (Join("a", kind="connect"),), Hello("a", 1), NO_GROUP,
        "CompletingRebalance 1 a="),
    # Deadlines and sessions.
    Row("who owes partitions is there until its deadline", (*TOLD, Wait(30_000)), Hello("b"), "3", IS_TOLD),
    Row("and is removed after it", TOLD, Wait(30_001), OK, "Assigning 4 b@3="),
    Row("for the other's good", (*TOLD, Wait(30_001)), Hello("b"), "4: 0123", "Stable 4 b@4=0123"),
    Row("a session lasts 45 seconds", (*ONE, Wait(45_000)), Hello("a"), "2", IS_ONE),
    Row("and not longer", (*ONE, Wait(45_001)), Hello("a", 2), GONE, "Empty 3"),
    Row("who has given up has no deadline", (*SHARED, Wait(30_001)), Hello("a"), "3", IS_SHARED),
    # Leaving.
    Row("what leaves is free", TWO, Hello("a", -1), "-1", "Assigning 4 b@3="),
    Row("for the others", (*TWO, Hello("a", -1)), Hello("b"), "4: 0123", "Stable 4 b@4=0123"),
    Row("when the last one leaves nobody is left", ONE, Hello("a", -1), "-1", "Empty 3"),
    Row("who has left is unknown", (*ONE, Hello("a", -1)), Hello("a", 2), GONE, "Empty 3"),
    Row("a topic's only reader bumps the epoch once",
        (Topic("u", 1), *ONE, enter("b", topics="u"), Hello("b", -1)), Hello("a"),
        "4", "Stable 4 a@4=0123"),
    Row("a member of the new protocol is removed by its name", ONE, Leave("a"), OK, "Empty 3"),
    Row("an instance that nobody has is not", HERE, Leave("", "j"), GONE, IS_ONE),
    Row("nor by another id", HERE, Leave("x", "i"), FENCED_INSTANCE, IS_ONE),
    Row("one leaves by its name", HERE, Leave("", "i"), OK, "Empty 3"),
    # Topics.
    Row("a group leaves epoch 0 although nothing matches", (), enter("a", topics=None, regex="x"),
        "1: nothing", "Stable 1 a@1="),
    Row("and stays there", NOTHING_YET, enter("b", topics=""), "1: nothing", "Stable 1 a@1= b@1="),
    Row("a topic that comes is shared out", (*NOTHING_YET, Topic("x", 2)), Hello("a"), "2: x01",
        "Stable 2 a@2=x01"),
    Row("one that grows, too", (*ONE, Topic("t", 6)), Hello("a"), "3: 012345", "Stable 3 a@3=012345"),
    Row("and once", (*ONE, Topic("t", 6), Hello("a")), Hello("a"), "3", "Stable 3 a@3=012345"),
    Row("one made anew is another", ANEW, Hello("a"), "2: nothing", "Reconciling 3 a@2="),
    Row("which comes when the old one has been given up", (*ANEW, Hello("a")), Hello("a", owns=""), "3: 0",
        "Stable 3 a@3=0"),
    Row("the assignor that most prefer assigns, here uneven topics unevenly", UNEVEN, Hello("a"),
        "2: x01y01",
        "Reconciling 3 a@2=x01y01 b@3="),
    Row("an expression stays until another is told", (enter("a", topics="", regex="t"), Hello("a")),
        Hello("a"), "2", IS_ONE),
    Row("an expression may change", (Topic("x", 1), *ONE), Hello("a", topics="", regex="x"), "2: nothing",
        "Reconciling 3 a@2="),
    # Static members.
    Row("a static member leaves for a while", HERE, Hello("a", -2, instance="i"), "-2",
        "Reconciling 2 a@-2=0123"),
    Row("and comes back", AWAY, enter("a", "i"), "2: 0123", IS_ONE),
    Row("under any id", AWAY, enter("b", "i"), "2: 0123", "Stable 2 b@2=0123"),
    Row("its former self is fenced at once", BACK, Hello("a", 2, instance="i"), FENCED_INSTANCE,
        "Stable 2 b@2=0123"),
    Row("also when it leaves", BACK, Hello("a", -1, instance="i"), FENCED_INSTANCE, "Stable 2 b@2=0123"),
    Row("who is away has no epoch", AWAY, Hello("a", 2, instance="i"), FENCED, "Reconciling 2 a@-2=0123"),
    Row("an instance is held until it leaves", HERE, enter("b", "i"), HELD, IS_ONE),
    Row("also from itself", HERE, enter("a", "i"), HELD, IS_ONE),
    Row("it is kept by who does not name it", (*HERE, Hello("a")), Hello("a", instance="i"), "2", IS_ONE),
    Row("nobody else speaks for it", HERE, Hello("b", 2, instance="i"), FENCED_INSTANCE, IS_ONE),
    Row("nor for one that nobody has", HERE, Hello("a", 2, instance="j"), GONE, IS_ONE),
    Row("who is away has given up what it owed", OWES, Hello("b"), "3: 23", "Reconciling 3 a@-2=01 b@3=23"),
    Row("and has no deadline", (*OWES, Wait(30_001)), Hello("b"), "3: 23", "Reconciling 3 a@-2=01 b@3=23"),
    Row("and comes back in the group's epoch", OWES, enter("c", "i"), "3: 01", "Reconciling 3 b@3= c@3=01"),
    # Members of the other protocol.
    Row("who speaks the new protocol does not speak the classic", ONE, Beat("a", 2), GONE, IS_ONE),
    # Deleting offsets.
    Row("offsets of a subscribed topic stay", ONE, DeleteOffset("t"), SUBSCRIBED, IS_ONE),
    Row("also by an expression", (enter("a", topics="", regex="t"),), DeleteOffset("t"), SUBSCRIBED,
        IS_ONE),
    Row("those of others go", (Topic("u", 1), *ONE), DeleteOffset("u"), OK, IS_ONE),
)

LACKING = tuple(
    Row(f"a heartbeat that {lacks}", (), beat, error, NONE)
    for lacks, beat, error in (
        ("has no member id", Hello("", 1), INVALID),
        ("has an epoch that there is not", Hello("a", -3), INVALID),
        ("leaves for a while without an instance", Hello("a", -2), INVALID),
        ("joins without a time-out", Hello("a", 0, "", "t"), INVALID),
        ("joins without topics", Hello("a", 0, "", rebalance_ms=1), INVALID),
        ("joins and does not say that it owns nothing", Hello("a", 0, None, "t", rebalance_ms=1), INVALID),
        ("joins and owns something", Hello("a", 0, "1", "t", rebalance_ms=1), INVALID),
        ("has an instance without a name", Hello("a", 1, instance=""), INVALID),
        ("has a rack without a name", Hello("a", 1, rack=""), INVALID),
        ("wants an assignor that there is not", Hello("a", 1, assignor="sticky"), "UNSUPPORTED_ASSIGNOR"),
        ("has an expression that is none", enter("a", regex="("), "INVALID_REGULAR_EXPRESSION"),
    )
)

PREFERENCES = (
    ((), "uniform"),
    ((None, None), "uniform"),
    (("range",), "range"),
    (("range", None, None, None), "range"),
    (("range", "range", "uniform"), "range"),
    (("uniform", "range", "uniform", None), "uniform"),
)
"""The assignors that members prefer, and the one that is taken."""

# -- a group that changes over -----------------------------------------------------------------------

OLD: Steps = (Join("old", rebalance_ms=30_000), Sync("old", "old=0123"))
MIXED: Steps = (*OLD, enter("new"))
JOINED: Steps = (*MIXED, Join("old"))
OBEYS: Steps = (*MIXED, Join("old", owns="0123"), Sync("old"))
"""A cooperative member, which has heard what to give up."""
SPLIT: Steps = (*OBEYS, Join("old", owns="01"), Sync("old"), Hello("new"))
LATER: Steps = (enter("new"), Join("old", rebalance_ms=30_000), Sync("old"))
BRIEF: Steps = (enter("new"), Join("old", session_ms=10_000))
FREE: Steps = (*LATER, Hello("new"), Hello("new", owns="01"))
BETWEEN: Steps = (*OLD, Join("old", owns="0123"), enter("new"))
"""It has joined the second generation, and not synced, when the group changes over."""
GIVEN: Steps = (*BETWEEN, Join("old", owns="0123"), Sync("old"), Join("old", owns="01"), Hello("new"))
STATIC_OLD: Steps = (Join("old", "i"), Sync("old", "old=0123", instance="i"), enter("new", "i"))
CAME_BACK: Steps = (*SPLIT, Hello("new", -1))
LEFT: Steps = (*MIXED, Hello("new", -1))
IS_OLD, IS_MIXED = "Stable 1 old=0123", "Reconciling 2 new@2= old~@1=0123"
IS_JOINED, IS_OBEYING = "Reconciling 2 new@2= old~@2=01", "Reconciling 2 new@2= old~@1=01"
IS_SPLIT, IS_LATER = "Stable 2 new@2=23 old~@2=01", "Reconciling 3 new@2=0123 old~@3="
IS_BETWEEN = "Reconciling 3 new@3= old~@2=0123"
IS_LEFT = "PreparingRebalance 2 old=01"
REVOKES: Steps = (*OLD, Join("old", owns="0123"), Sync("old", "old=01"))
"""A cooperative member in its callback: its leader left 2 and 3 to nobody, and it still commits them."""
OTHER = b"something else"
EMPTY: Steps = (*ALONE, Leave("a"))
LEFT_NEW: Steps = (*ONE, Hello("a", -1))

CHANGE_OVER = (
    Row("a classic group changes over", OLD, enter("new"), "2: nothing", IS_MIXED),
    Row("its members are told to join again", MIXED, Beat("old"), REBALANCING, IS_MIXED),
    Row("also by their syncs", MIXED, Sync("old"), REBALANCING, IS_MIXED),
    Row("who has given up everything joins the new epoch", MIXED, Join("old"), "2 range, nobody leads",
        IS_JOINED),
    Row("and has what the coordinator assigns", JOINED, Sync("old"), "01", IS_JOINED),
    Row("and so has the newcomer", JOINED, Hello("new"), "2: 23", IS_SPLIT),
    Row("then all is well", (*JOINED, Sync("old"), Hello("new")), Beat("old"), OK, IS_SPLIT),
    Row("who still owns all stays in the former epoch", MIXED, Join("old", owns="0123"),
        "1 range, nobody leads", IS_OBEYING),
    Row("and hears what it keeps", (*MIXED, Join("old", owns="0123")), Sync("old"), "01", IS_OBEYING),
    Row("the rest is not free yet", OBEYS, Hello("new"), "2", IS_OBEYING),
    Row("it is told to join again", OBEYS, Beat("old"), REBALANCING, IS_OBEYING),
    Row("and has then given up", OBEYS, Join("old", owns="01"), "2 range, nobody leads", IS_JOINED),
    Row("so that the newcomer gets it", (*OBEYS, Join("old", owns="01")), Hello("new"), "2: 23", IS_SPLIT),
    Row("a classic member joins a group of the new kind", (enter("new"),), Join("old"),
        "3 range, nobody leads", IS_LATER),
    Row("and waits for its share", LATER, Sync("old"), "nothing", IS_LATER),
    Row("in peace", LATER, Beat("old"), OK, IS_LATER),
    Row("until that is free", FREE, Beat("old"), REBALANCING, "Reconciling 3 new@3=01 old~@3="),
    Row("then it gets it", (*FREE, Join("old")), Sync("old"), "23", "Stable 3 new@3=01 old~@3=23"),
    Row("only the assignor that a member joined with is its own", JOINED, Sync("old", name="x"),
        INCONSISTENT, IS_JOINED),
    Row("and its type", JOINED, Sync("old", kind="connect"), INCONSISTENT, IS_JOINED),
    Row("and its generation, in a sync", JOINED, Sync("old", generation=1), ILLEGAL, IS_JOINED),
    Row("or a heartbeat", JOINED, Beat("old", 1), ILLEGAL, IS_JOINED),
    # Deadlines.
    Row("who hears what to give up has a deadline all the same",
        (*MIXED, Join("old", owns="0123", rebalance_ms=30_000), Sync("old"), Wait(30_001)), Beat("old"),
        GONE,
        "Assigning 3 new@2="),
    Row("a classic member is to join by its deadline",
        (*MIXED, Beat("old"), Wait(15_001), Beat("old"), Wait(14_999)),
        Hello("new"), "2", IS_MIXED),
    Row("which its heartbeats do not move", (*MIXED, Beat("old"), Wait(15_001), Beat("old"), Wait(15_000)),
        Hello("new"), "3: 0123", "Stable 3 new@3=0123"),
    Row("who has joined is to sync by it", (*LATER[:-1], Wait(30_000)), Beat("old"), OK, IS_LATER),
    Row("or is removed", (*LATER[:-1], Wait(30_001)), Beat("old"), GONE, "Assigning 4 new@2=0123"),
    Row("who has synced has none", (*LATER, Wait(30_001)), Beat("old"), OK, IS_LATER),
    Row("a classic member has its own session", (*BRIEF, Wait(10_000)), Beat("old"), OK, IS_LATER),
    Row("and no longer one", (*BRIEF, Wait(10_001)), Beat("old"), GONE, "Assigning 4 new@2=0123"),
    *(
        Row(f"which {request} renews", (*BRIEF, Wait(9_000), request, Wait(9_000)), Beat("old"), OK,
            IS_LATER)
        for request in (BRIEF[-1], Sync("old"), Beat("old"))
    ),
    # The last member of the new protocol goes.
    Row("a group without members of the new protocol is classic again", CAME_BACK, Beat("old", 2),
        REBALANCING, IS_LEFT),
    Row("also to a sync", CAME_BACK, Sync("old", generation=2, name="range"), REBALANCING, IS_LEFT),
    Row("the generation goes on", CAME_BACK, Join("old"), "3 range, old leads",
        "CompletingRebalance 3 old=01"),
    Row("and nobody gets what is read in it", CAME_BACK, enter("newer"), "3: 23",
        "Reconciling 3 newer@3=23 old~@2=01"),
    Row("nor what it still owns beside its target", LEFT, enter("newer"), "3: nothing",
        "Reconciling 3 newer@3= old~@2=0123"),
    Row("until it has heard what to give up", (*LEFT, enter("newer"), Join("old", owns="0123")),
        Commit("old", 2), OK, "Reconciling 3 newer@3= old~@2=01"),
    Row("and has given it up", (*LEFT, enter("newer"), *(Join("old", owns=own) for own in ("0123", "01"))),
        Hello("newer"), "3: 23", "Stable 3 newer@3=23 old~@3=01"),
    Row("one of several does not make it that", (*MIXED, enter("newer")), Hello("new", -1), "-1",
        "Assigning 4 newer@3= old~@1=0123"),
    Row("who is behind then is fenced", LEFT, Beat("old", 1), ILLEGAL, "PreparingRebalance 2 old=0123"),
    Row("and joins again", LEFT, Join("old"), "3 range, old leads", "CompletingRebalance 3 old=0123"),
    Row("a session that ends is the same", (enter("new"), Join("old"), Wait(45_001)), Join("old"),
        "4 range, old leads", "CompletingRebalance 4 old="),
    # Members between two requests.
    Row("who has joined and not synced keeps what it had", (*OLD, Join("old", owns="0123")), enter("new"),
        "3: nothing", IS_BETWEEN),
    Row("so does who waits for a second rebalance (Kafka forgets it)",
        (*OLD, Join("old", owns="0123"), Join("c")),
        enter("new"), "3: nothing", "Reconciling 3 c~@2= new@3= old~@2=0123"),
    Row("whom the leader left out has nothing", (*OLD, Join("old"), Sync("old")), enter("new"),
        "3: 02", "Reconciling 3 new@3=02 old~@2="),
    Row("but it commits what it has not revoked yet (Kafka gives that away)", (*REVOKES, enter("new")),
        Commit("old", 2), OK, "Reconciling 3 new@3= old~@2=01"),
    Row("it is told to join again when it has", (*REVOKES, enter("new")), Beat("old", 2), REBALANCING,
        "Reconciling 3 new@3= old~@2=01"),
    Row("still owns that while it does not", (*REVOKES, enter("new"), Join("old", owns="0123")),
        Hello("new"), "3", "Reconciling 3 new@3= old~@2=01"),
    Row("and gives it up", (*REVOKES, enter("new"), Join("old", owns="01")), Hello("new"), "3: 23",
        "Stable 3 new@3=23 old~@3=01"),
    # Removal by name.
    Row("a classic member is removed by its name", MIXED, Leave("old"), OK, "Assigning 3 new@2="),
    Row("a stranger is not", MIXED, Leave("x"), GONE, IS_MIXED),
    Row("one of the new protocol is", LATER, Leave("new"), OK, "PreparingRebalance 3 old="),
    # Static members.
    Row("a static member changes its protocol", STATIC_OLD[:-1], enter("new", "i"), "2: 0123",
        "Stable 2 new@2=0123"),
    Row("and fences its former self", STATIC_OLD, Beat("old", 1, "i"), FENCED_INSTANCE,
        "Stable 2 new@2=0123"),
    Row("a classic one joins again under its id", (*STATIC_OLD, Join("back", "i")), Join("back", "i"),
        "2 range, nobody leads", "Stable 2 back~@2=0123"),
    Row("and changes it back", (*STATIC_OLD, Join("back", "i")), Sync("back", instance="i"), "0123",
        "Stable 2 back~@2=0123"),
    # Without members, either protocol goes on behind the other.
    Row("the new protocol goes on behind the classic one", EMPTY, enter("b"), "3: 0123",
        "Stable 3 b@3=0123"),
    Row("and the classic one behind it", LEFT_NEW, Join("b"), "4 range, b leads",
        "CompletingRebalance 4 b="),
    # Others.
    Row("other programs' groups do not change over", (Join("x", kind="connect"),), enter("new"), NO_GROUP,
        "CompletingRebalance 1 x="),
    Row("nor those of who says no subscription", (Join("x", says=OTHER),), enter("new"), NO_GROUP,
        "CompletingRebalance 1 x="),
    Row("nor are they let in", ONE, Join("x", kind="connect"), INCONSISTENT, IS_ONE),
    Row("whatever their id is", ONE, Join("x", kind="connect", is_known=True), INCONSISTENT, IS_ONE),
    Row("nor without an assignor", ONE, Join("x", wants=""), INCONSISTENT, IS_ONE),
    Row("with whatever they say", ONE, Join("x", says=OTHER), INCONSISTENT, IS_ONE),
    Row("assignors have to fit", JOINED, Join("x", wants="roundrobin"), INCONSISTENT, IS_JOINED),
)

# -- offsets -----------------------------------------------------------------------------------------

_COMMITS: tuple[tuple[Steps, str, int, str, str], ...] = (
    # In which group, who, in which generation, what it is told, and in a transaction (KIP-447).
    ((), "", -1, OK, OK),
    ((), "a", -1, OK, OK),
    ((), "a", 1, NO_GROUP, ILLEGAL),
    ((), "", 0, NO_GROUP, ILLEGAL),
    (EMPTY, "", -1, OK, OK),
    (EMPTY, "a", -1, OK, OK),
    (EMPTY, "a", 0, GONE, GONE),
    (EMPTY, "", 0, GONE, GONE),
    (ALONE, "", -1, GONE, OK),
    (ALONE, "a", 1, OK, OK),
    (ALONE, "a", 0, ILLEGAL, ILLEGAL),
    (ALONE, "a", -1, ILLEGAL, ILLEGAL),
    (ALONE, "x", 1, GONE, GONE),
    (SECOND, "a", 1, OK, OK),
    (FORMED, "a", 2, REBALANCING, OK),
    (FORMED, "a", 1, ILLEGAL, ILLEGAL),
    (FORMED, "x", 2, GONE, GONE),
    ((*SHORT, Wait(10_001)), "a", 1, GONE, GONE),
    (ONE, "a", 2, OK, OK),
    (ONE, "a", 1, STALE, ILLEGAL),
    (ONE, "a", 3, STALE, ILLEGAL),
    (ONE, "a", -1, STALE, ILLEGAL),
    (ONE, "x", 2, GONE, GONE),
    (ONE, "", -1, GONE, OK),
    (LEFT_NEW, "", -1, OK, OK),
    (LEFT_NEW, "a", 1, GONE, GONE),
    (JOINED, "old", 2, OK, OK),
    (JOINED, "old", 0, ILLEGAL, ILLEGAL),
    # Of two commits of one partition, in two generations, one is refused.
    (BETWEEN, "old", 2, OK, OK),
    (CAME_BACK, "old", 2, OK, OK),
    (LEFT, "old", 1, ILLEGAL, ILLEGAL),
    ((*CAME_BACK, enter("newer")), "old", 2, OK, OK),
)
GOT_BACK: Steps = (*SHARED, Hello("b", -1), Hello("a"))
_OLDER: tuple[tuple[Steps, str, int, str, str, str], ...] = (
    # As above, with the partitions that it commits: it keeps them, or has given one up since (KIP-1251).
    (GAVE, "a", 2, "01", OK, OK),
    (GAVE, "a", 2, "2", STALE, ILLEGAL),
    (GAVE, "a", 2, "02", STALE, ILLEGAL),
    (GAVE, "a", 1, "0", STALE, ILLEGAL),
    (GAVE, "a", -1, "0", STALE, ILLEGAL),
    (LATE, "a", 2, "01", OK, OK),  # It still has to give up 1.
    (LATE, "a", 2, "2", STALE, ILLEGAL),
    (GOT_BACK, "a", 2, "01", OK, OK),
    (GOT_BACK, "a", 3, "2", STALE, ILLEGAL),
    ((*TOLD, Hello("b", -1), Hello("a", owns="01")), "a", 2, "2", STALE, ILLEGAL),
    (AWAY, "a", 2, "0", STALE, ILLEGAL),
    (BACK, "b", 1, "0", STALE, ILLEGAL),  # Kafka accepts it.
    ((*OWES, enter("c", "i")), "c", 2, "01", OK, OK),
    ((*OWES, enter("c", "i")), "c", 2, "2", STALE, ILLEGAL),
    ((*ANEW, Hello("a"), Hello("a", owns="")), "a", 2, "0", STALE, ILLEGAL),
    (JOINED, "old", 1, "01", OK, OK),
    (JOINED, "old", 1, "2", ILLEGAL, ILLEGAL),
    (GIVEN, "old", 2, "01", OK, OK),
    (GIVEN, "old", 2, "3", ILLEGAL, ILLEGAL),
    (GIVEN, "new", 3, "3", OK, OK),
)


def _commits() -> Iterator[Row]:
    commits = (*((*row[:3], "0", *row[3:]) for row in _COMMITS), *_OLDER)
    for number, (state, who, generation, of, plain, transactional) in enumerate(commits):
        for in_transaction, answer in ((False, plain), (True, transactional)):
            kind = "in a transaction" if in_transaction else "plain"
            yield Row(
                f"commit {number}, {kind}: {who!r} in {generation}, of {of}",
                state, Commit(who, generation, in_transaction=in_transaction, of=of), answer,
                "Empty 0" if not state and answer == OK else "",
            )


COMMITS = (
    *_commits(),
    *(
        Row(f"an instance, {instance!r}, is no simple commit: {answer}", state,
            Commit("", -1, instance, in_transaction=True), answer, "")
        for state, instance, answer in (
            (HERE, "i", GONE), (HERE, "j", GONE), (STATIC, "w", FENCED_INSTANCE), (STATIC, "x", GONE),
        )
    ),
)

FETCHES = tuple(
    Row(f"fetch: {who!r} in {epoch}", state, Fetch(who, epoch), answer, "")
    for state, who, epoch, answer in (
        (ONE, None, -1, OK), (ONE, None, 2, GONE), (ONE, "a", 2, OK), (ONE, "a", 1, STALE), (ONE, "a", 3,
        STALE), (ONE, "a", -1,
        STALE),
        (ONE, "", -1, GONE), (ONE, "x", 1, GONE), (JOINED, "old", 2, OK), (JOINED, "old", 1, ILLEGAL),
        (JOINED, "old", -1, ILLEGAL),
    )
)
# fmt: on

TABLE = (*CLASSIC, *CONSUMER, *LACKING, *CHANGE_OVER, *COMMITS, *FETCHES)
