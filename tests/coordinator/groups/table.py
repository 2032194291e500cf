"""What requests make of a group: the classic protocol, the new one, and a group that changes over.

One table for tests of decisions, broker and wire. The rules are Kafka 4.4.0's (ClassicGroup,
GroupMetadataManager), but for a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.coordinator.groups.classic_table import (
    ALONE,
    CLASSIC,
    FENCED,
    FENCED_INSTANCE,
    FORMED,
    GONE,
    HELD,
    ILLEGAL,
    INCONSISTENT,
    INVALID,
    NO_GROUP,
    NONE,
    OK,
    REBALANCING,
    SECOND,
    SHORT,
    STALE,
    STATIC,
    SUBSCRIBED,
    Steps,
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
    Sync,
    Topic,
    Wait,
    enter,
)

# fmt: off
# -- the new protocol --------------------------------------------------------------------------------

ONE: Steps = (enter("a"),)  # One has all.
TWO: Steps = (*ONE, enter("b"))  # A second one is to get half.
TOLD: Steps = (*TWO, Hello("a"))  # The first knows what to give up.
GAVE: Steps = (*TOLD, Hello("a", owns="01"))  # It has given that up.
SHARED: Steps = (*GAVE, Hello("b"))  # The second one has it.
# Two more have come; the first has heard of it.
LATE: Steps = (*SHARED, enter("c"), enter("d"), Hello("a"))
IS_ONE, IS_TWO, IS_TOLD = "Stable 2 a@2=0123", "Reconciling 3 a@2=0123 b@3=", "Reconciling 3 a@2=01 b@3="
IS_GIVEN, IS_SHARED = "Reconciling 3 a@3=01 b@3=", "Stable 3 a@3=01 b@3=23"
IS_LATE = "Reconciling 5 a@3=0 b@3=23 c@4= d@5="
HERE: Steps = (enter("a", "i"),)  # A static member.
AWAY: Steps = (*HERE, Hello("a", -2, instance="i"))  # It is away.
BACK: Steps = (*AWAY, enter("b", "i"))  # It has come back under another id.
OWES: Steps = (*HERE, enter("b"), Hello("a", instance="i"), Hello("a", -2, instance="i"))
"""Away while it was to give up half."""
NOTHING_YET: Steps = (enter("a", topics=None, regex="x"),)
UNEVEN: Steps = (
    Topic("x", 3), Topic("y", 3), Hello("a", 0, "", "x y", assignor="range", rebalance_ms=30_000),
    enter("b", topics="x y"),
)
ANEW: Steps = (*ONE, Topic("t", 0), Topic("t", 1))  # Its topic was deleted and made again.

CONSUMER = (
    Row("the first member gets all partitions", (), enter("a"), "2: 0123", IS_ONE),
    Row("a member hears of its partitions once", ONE, Hello("a"), "2", IS_ONE),
    Row("a member that sends all of its state hears of its partitions again", ONE, Hello("a", 2, "0123",
        "t", rebalance_ms=30_000), "2: 0123", IS_ONE),
    Row("a second member gets only what is free", ONE, enter("b"), "3: nothing", IS_TWO),
    Row("a member is told what to give up for another", TWO, Hello("a"), "2: 01", IS_TOLD),
    Row("a partition is not free before its member has given it up", TOLD, Hello("b"), "3", IS_TOLD),
    Row("a heartbeat without owned partitions gives nothing up", TOLD, Hello("a"), "2", IS_TOLD),
    Row("a heartbeat that still names one of the partitions gives nothing up", TOLD, Hello("a",
        owns="012"), "2", IS_TOLD),
    Row("a heartbeat that names only what it must give up gives nothing up", TOLD, Hello("a", owns="2"),
        "2", IS_TOLD),
    Row("a member has given up what it does not name", TOLD, Hello("a", owns="01"), "3", IS_GIVEN),
    Row("what a member has given up is the other's", GAVE, Hello("b"), "3: 23", IS_SHARED),
    Row("a member that gives up more than it must is told the rest", TWO, Hello("a", owns=""), "3: 01",
        IS_GIVEN),
    Row("a lost answer is asked for again", GAVE, Hello("a", 2, "01"), "3", IS_GIVEN),
    Row("a lost answer is not for a member that has other partitions", GAVE, Hello("a", 2, "03"), FENCED,
        IS_GIVEN),
    Row("a lost answer is not for a member that does not say what it has", GAVE, Hello("a", 2), FENCED,
        IS_GIVEN),
    Row("a late heartbeat confirms nothing newer", LATE, Hello("a", 2, "0"), FENCED, IS_LATE),
    Row("a member that must give up more stays in its epoch", (*TOLD, enter("c"), enter("d")),
        Hello("a", owns="01"), "2: 0", "Reconciling 5 a@2=0 b@3= c@4= d@5="),
    Row("what a member gave up is its own again if nobody is to have it", (*TOLD, Hello("b", -1)),
        Hello("a", owns="01"), "4: 0123", "Stable 4 a@4=0123"),
    # A known member joins again and owns nothing.
    Row("a known member that joins again is told once more what it has", SHARED, enter("a"), "3: 01",
        IS_SHARED),
    Row("a known member that joins again has given up what it must", TOLD, enter("a"), "3: 01", IS_GIVEN),
    Row("a member in the next epoch is fenced", ONE, Hello("a", 3), FENCED, IS_ONE),
    Row("a member in any later epoch is fenced", ONE, Hello("a", 10), FENCED, IS_ONE),
    Row("a heartbeat of a stranger is unknown", ONE, Hello("x", 2), GONE, IS_ONE),
    Row("a heartbeat to no group is not found", (), Hello("a", 5), NO_GROUP, NONE),
    Row("a leave from no group is not found", (), Hello("a", -1), NO_GROUP, NONE),
    Row("a heartbeat of the new protocol does not find a Connect group", (Join("a", kind="connect"),),
        Hello("a", 1), NO_GROUP,
        "CompletingRebalance 1 a="),
    # Deadlines and sessions.
    Row("a member that is to give up partitions is there until its deadline", (*TOLD, Wait(30_000)),
        Hello("b"), "3", IS_TOLD),
    Row("a member that has not given up its partitions by its deadline is removed", TOLD, Wait(30_001),
        OK, "Assigning 4 b@3="),
    Row("the partitions of a member that was removed are the other's", (*TOLD, Wait(30_001)), Hello("b"),
        "4: 0123", "Stable 4 b@4=0123"),
    Row("a session lasts 45 seconds", (*ONE, Wait(45_000)), Hello("a"), "2", IS_ONE),
    Row("after 45 seconds without a heartbeat a member is gone", (*ONE, Wait(45_001)), Hello("a", 2),
        GONE, "Empty 3"),
    Row("a member that has given up has no deadline", (*SHARED, Wait(30_001)), Hello("a"), "3", IS_SHARED),
    # Leaving.
    Row("the partitions of a member that leaves are free", TWO, Hello("a", -1), "-1", "Assigning 4 b@3="),
    Row("the partitions of a member that left are another's", (*TWO, Hello("a", -1)), Hello("b"),
        "4: 0123", "Stable 4 b@4=0123"),
    Row("when the last member of the new protocol leaves the group is empty", ONE, Hello("a", -1), "-1",
        "Empty 3"),
    Row("a member of the new protocol that has left is unknown", (*ONE, Hello("a", -1)), Hello("a", 2),
        GONE, "Empty 3"),
    Row("a topic's only reader bumps the epoch once",
        (Topic("u", 1), *ONE, enter("b", topics="u"), Hello("b", -1)), Hello("a"),
        "4", "Stable 4 a@4=0123"),
    Row("a member of the new protocol is removed by its name", ONE, Leave("a"), OK, "Empty 3"),
    Row("an instance of the new protocol that nobody has cannot be removed", HERE, Leave("", "j"), GONE,
        IS_ONE),
    Row("an instance of the new protocol is not removed under another id", HERE, Leave("x", "i"),
        FENCED_INSTANCE, IS_ONE),
    Row("a static member of the new protocol is removed by its instance", HERE, Leave("", "i"), OK,
        "Empty 3"),
    # Topics.
    Row("a group leaves epoch 0 although nothing matches", (), enter("a", topics=None, regex="x"),
        "1: nothing", "Stable 1 a@1="),
    Row("a group without topics stays in epoch 1", NOTHING_YET, enter("b", topics=""), "1: nothing",
        "Stable 1 a@1= b@1="),
    Row("a topic that comes is shared out", (*NOTHING_YET, Topic("x", 2)), Hello("a"), "2: x01",
        "Stable 2 a@2=x01"),
    Row("new partitions of a topic are shared out", (*ONE, Topic("t", 6)), Hello("a"), "3: 012345",
        "Stable 3 a@3=012345"),
    Row("new partitions are told once", (*ONE, Topic("t", 6), Hello("a")), Hello("a"), "3",
        "Stable 3 a@3=012345"),
    Row("a topic that was made anew is another topic", ANEW, Hello("a"), "2: nothing",
        "Reconciling 3 a@2="),
    Row("a topic made anew is assigned when the old one has been given up", (*ANEW, Hello("a")),
        Hello("a", owns=""), "3: 0",
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
    Row("a static member that was away comes back", AWAY, enter("a", "i"), "2: 0123", IS_ONE),
    Row("a static member that was away comes back under any id", AWAY, enter("b", "i"), "2: 0123",
        "Stable 2 b@2=0123"),
    Row("the former self of one that came back is fenced", BACK, Hello("a", 2, instance="i"),
        FENCED_INSTANCE,
        "Stable 2 b@2=0123"),
    Row("the former self of one that came back cannot leave", BACK, Hello("a", -1, instance="i"),
        FENCED_INSTANCE, "Stable 2 b@2=0123"),
    Row("a member that is away has no epoch", AWAY, Hello("a", 2, instance="i"), FENCED,
        "Reconciling 2 a@-2=0123"),
    Row("an instance is held until it leaves", HERE, enter("b", "i"), HELD, IS_ONE),
    Row("an instance is held from its own member, too", HERE, enter("a", "i"), HELD, IS_ONE),
    Row("a heartbeat without the instance keeps it", (*HERE, Hello("a")), Hello("a", instance="i"), "2",
        IS_ONE),
    Row("another member does not speak for an instance", HERE, Hello("b", 2, instance="i"),
        FENCED_INSTANCE, IS_ONE),
    Row("a heartbeat names an instance that nobody has", HERE, Hello("a", 2, instance="j"), GONE, IS_ONE),
    Row("a member that is away has given up what it was to give up", OWES, Hello("b"), "3: 23",
        "Reconciling 3 a@-2=01 b@3=23"),
    Row("a member that is away has no deadline", (*OWES, Wait(30_001)), Hello("b"), "3: 23",
        "Reconciling 3 a@-2=01 b@3=23"),
    Row("a member that was away comes back in the group's epoch", OWES, enter("c", "i"), "3: 01",
        "Reconciling 3 b@3= c@3=01"),
    # Members of the other protocol.
    Row("a member of the new protocol does not speak the classic one", ONE, Beat("a", 2), GONE, IS_ONE),
    # Deleting offsets.
    Row("offsets of a subscribed topic stay", ONE, DeleteOffset("t"), SUBSCRIBED, IS_ONE),
    Row("offsets of a topic that an expression matches stay", (enter("a", topics="", regex="t"),),
        DeleteOffset("t"), SUBSCRIBED,
        IS_ONE),
    Row("offsets of topics without a subscription are deleted", (Topic("u", 1), *ONE), DeleteOffset("u"),
        OK, IS_ONE),
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

OLD: Steps = (Join("old", rebalance_ms=30_000), Sync("old", "old=0123"))  # A classic group.
MIXED: Steps = (*OLD, enter("new"))  # One of the new protocol has come.
JOINED: Steps = (*MIXED, Join("old"))  # The classic member has given all up and joined.
OBEYS: Steps = (*MIXED, Join("old", owns="0123"), Sync("old"))
"""A cooperative member, which has heard what to give up."""
SPLIT: Steps = (*OBEYS, Join("old", owns="01"), Sync("old"), Hello("new"))  # Both have their halves.
# A classic member in a group of the new kind.
LATER: Steps = (enter("new"), Join("old", rebalance_ms=30_000), Sync("old"))
BRIEF: Steps = (enter("new"), Join("old", session_ms=10_000))  # The same, with a session of 10 s.
FREE: Steps = (*LATER, Hello("new"), Hello("new", owns="01"))  # Its share is free.
BETWEEN: Steps = (*OLD, Join("old", owns="0123"), enter("new"))
"""It has joined the second generation, and not synced, when the group changes over."""
GIVEN: Steps = (*BETWEEN, Join("old", owns="0123"), Sync("old"), Join("old", owns="01"), Hello("new"))
# A static member has changed its protocol.
STATIC_OLD: Steps = (Join("old", "i"), Sync("old", "old=0123", instance="i"), enter("new", "i"))
CAME_BACK: Steps = (*SPLIT, Hello("new", -1))  # The group is classic again.
LEFT: Steps = (*MIXED, Hello("new", -1))  # The new member left before the classic one joined.
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
    Row("a heartbeat of a changed group tells a classic member to join again", MIXED, Beat("old"),
        REBALANCING, IS_MIXED),
    Row("a sync in a changed group tells a classic member to join again", MIXED, Sync("old"), REBALANCING,
        IS_MIXED),
    Row("a classic member that owns nothing joins the new epoch", MIXED, Join("old"),
        "2 range, nobody leads",
        IS_JOINED),
    Row("a classic member's sync gets what the coordinator assigns", JOINED, Sync("old"), "01", IS_JOINED),
    Row("a newcomer gets what the classic member has given up", JOINED, Hello("new"), "2: 23", IS_SPLIT),
    Row("a classic member that has its share hears of no rebalance", (*JOINED, Sync("old"), Hello("new")),
        Beat("old"), OK, IS_SPLIT),
    Row("a classic member that still owns all stays in the former epoch", MIXED, Join("old", owns="0123"),
        "1 range, nobody leads", IS_OBEYING),
    Row("a classic member that owns all hears by its sync what it keeps", (*MIXED, Join("old",
        owns="0123")), Sync("old"), "01", IS_OBEYING),
    Row("what a classic member has heard of is not free yet", OBEYS, Hello("new"), "2", IS_OBEYING),
    Row("a classic member that is to give up partitions is told to join again", OBEYS, Beat("old"),
        REBALANCING, IS_OBEYING),
    Row("a classic member that joins with less has given up", OBEYS, Join("old", owns="01"),
        "2 range, nobody leads", IS_JOINED),
    Row("what a classic member gave up is the newcomer's", (*OBEYS, Join("old", owns="01")), Hello("new"),
        "2: 23", IS_SPLIT),
    Row("a classic member joins a group of the new kind", (enter("new"),), Join("old"),
        "3 range, nobody leads", IS_LATER),
    Row("a classic member in a new group waits for its share", LATER, Sync("old"), "nothing", IS_LATER),
    Row("a classic member that waits for its share hears of no rebalance", LATER, Beat("old"), OK,
        IS_LATER),
    Row("a classic member is told to join again when its share is free", FREE, Beat("old"), REBALANCING,
        "Reconciling 3 new@3=01 old~@3="),
    Row("a classic member that has joined again gets its share", (*FREE, Join("old")), Sync("old"), "23",
        "Stable 3 new@3=01 old~@3=23"),
    Row("only the assignor that a member joined with is its own", JOINED, Sync("old", name="x"),
        INCONSISTENT, IS_JOINED),
    Row("a sync in a changed group names its own protocol type", JOINED, Sync("old", kind="connect"),
        INCONSISTENT, IS_JOINED),
    Row("a sync in a changed group names its own generation", JOINED, Sync("old", generation=1), ILLEGAL,
        IS_JOINED),
    Row("a heartbeat in a changed group names its own generation", JOINED, Beat("old", 1), ILLEGAL,
        IS_JOINED),
    # Deadlines.
    Row("a classic member that has heard what to give up has a deadline",
        (*MIXED, Join("old", owns="0123", rebalance_ms=30_000), Sync("old"), Wait(30_001)), Beat("old"),
        GONE,
        "Assigning 3 new@2="),
    Row("a classic member is to join by its deadline",
        (*MIXED, Beat("old"), Wait(15_001), Beat("old"), Wait(14_999)),
        Hello("new"), "2", IS_MIXED),
    Row("heartbeats do not move a classic member's deadline", (*MIXED, Beat("old"), Wait(15_001),
        Beat("old"), Wait(15_000)),
        Hello("new"), "3: 0123", "Stable 3 new@3=0123"),
    Row("a classic member that has joined may sync until its deadline", (*LATER[:-1], Wait(30_000)),
        Beat("old"), OK, IS_LATER),
    Row("a classic member that has not synced by its deadline is removed", (*LATER[:-1], Wait(30_001)),
        Beat("old"), GONE, "Assigning 4 new@2=0123"),
    Row("a classic member that has synced has no deadline", (*LATER, Wait(30_001)), Beat("old"), OK,
        IS_LATER),
    Row("a classic member has its own session", (*BRIEF, Wait(10_000)), Beat("old"), OK, IS_LATER),
    Row("after its own session's time-out a classic member is gone", (*BRIEF, Wait(10_001)), Beat("old"),
        GONE, "Assigning 4 new@2=0123"),
    *(
        Row(f"{request} renews a classic member's session", (*BRIEF, Wait(9_000), request, Wait(9_000)),
            Beat("old"), OK,
            IS_LATER)
        for request in (BRIEF[-1], Sync("old"), Beat("old"))
    ),
    # The last member of the new protocol goes.
    Row("a group without members of the new protocol is classic again", CAME_BACK, Beat("old", 2),
        REBALANCING, IS_LEFT),
    Row("a group that is classic again tells a sync to join again", CAME_BACK, Sync("old", generation=2,
        name="range"), REBALANCING, IS_LEFT),
    Row("a group that is classic again goes on with its generation", CAME_BACK, Join("old"),
        "3 range, old leads",
        "CompletingRebalance 3 old=01"),
    Row("a newcomer does not get what a member of the classic generation reads", CAME_BACK,
        enter("newer"), "3: 23",
        "Reconciling 3 newer@3=23 old~@2=01"),
    Row("a newcomer does not get what a classic member owns beside its target", LEFT, enter("newer"),
        "3: nothing",
        "Reconciling 3 newer@3= old~@2=0123"),
    Row("a classic member commits what it has not heard of giving up", (*LEFT, enter("newer"), Join("old",
        owns="0123")),
        Commit("old", 2), OK, "Reconciling 3 newer@3= old~@2=01"),
    Row("a newcomer gets what a classic member has heard of and given up", (*LEFT, enter("newer"),
        *(Join("old", owns=own) for own in ("0123", "01"))),
        Hello("newer"), "3: 23", "Stable 3 newer@3=23 old~@3=01"),
    Row("a group with another member of the new protocol stays one of the new kind", (*MIXED,
        enter("newer")), Hello("new", -1), "-1",
        "Assigning 4 newer@3= old~@1=0123"),
    Row("a member behind a group that is classic again is refused", LEFT, Beat("old", 1), ILLEGAL,
        "PreparingRebalance 2 old=0123"),
    Row("a member behind a group that is classic again joins again", LEFT, Join("old"),
        "3 range, old leads", "CompletingRebalance 3 old=0123"),
    Row("a group is classic again when the last new session has ended", (enter("new"), Join("old"),
        Wait(45_001)), Join("old"),
        "4 range, old leads", "CompletingRebalance 4 old="),
    # Members between two requests.
    Row("a member that has joined and not synced keeps what it had", (*OLD, Join("old", owns="0123")),
        enter("new"),
        "3: nothing", IS_BETWEEN),
    Row("a member that waits for a second rebalance keeps what it had (Kafka forgets it)",
        (*OLD, Join("old", owns="0123"), Join("c")),
        enter("new"), "3: nothing", "Reconciling 3 c~@2= new@3= old~@2=0123"),
    Row("a member that the leader left out has nothing", (*OLD, Join("old"), Sync("old")), enter("new"),
        "3: 02", "Reconciling 3 new@3=02 old~@2="),
    Row("a member in its callback commits what it has not revoked yet (Kafka gives that away)", (*REVOKES,
        enter("new")),
        Commit("old", 2), OK, "Reconciling 3 new@3= old~@2=01"),
    Row("a member in its callback is told to join again", (*REVOKES, enter("new")), Beat("old", 2),
        REBALANCING,
        "Reconciling 3 new@3= old~@2=01"),
    Row("a newcomer does not get what a member in its callback still owns", (*REVOKES, enter("new"),
        Join("old", owns="0123")),
        Hello("new"), "3", "Reconciling 3 new@3= old~@2=01"),
    Row("a newcomer gets what a member has given up behind its callback", (*REVOKES, enter("new"),
        Join("old", owns="01")), Hello("new"), "3: 23",
        "Stable 3 new@3=23 old~@3=01"),
    # Removal by name.
    Row("a classic member is removed by its name", MIXED, Leave("old"), OK, "Assigning 3 new@2="),
    Row("a stranger is not removed from a changed group", MIXED, Leave("x"), GONE, IS_MIXED),
    Row("a member of the new protocol is removed from a changed group", LATER, Leave("new"), OK,
        "PreparingRebalance 3 old="),
    # Static members.
    Row("a static member changes its protocol", STATIC_OLD[:-1], enter("new", "i"), "2: 0123",
        "Stable 2 new@2=0123"),
    Row("a static member that changed its protocol fences its former self", STATIC_OLD, Beat("old", 1,
        "i"), FENCED_INSTANCE,
        "Stable 2 new@2=0123"),
    Row("a static member joins again by the classic protocol", (*STATIC_OLD, Join("back", "i")),
        Join("back", "i"),
        "2 range, nobody leads", "Stable 2 back~@2=0123"),
    Row("a static member that changed back gets its share", (*STATIC_OLD, Join("back", "i")), Sync("back",
        instance="i"), "0123",
        "Stable 2 back~@2=0123"),
    # Without members, either protocol goes on behind the other.
    Row("the new protocol goes on behind the classic one", EMPTY, enter("b"), "3: 0123",
        "Stable 3 b@3=0123"),
    Row("the classic protocol goes on behind the new one", LEFT_NEW, Join("b"), "4 range, b leads",
        "CompletingRebalance 4 b="),
    # Others.
    Row("other programs' groups do not change over", (Join("x", kind="connect"),), enter("new"), NO_GROUP,
        "CompletingRebalance 1 x="),
    Row("groups of members without a subscription do not change over", (Join("x", says=OTHER),),
        enter("new"), NO_GROUP,
        "CompletingRebalance 1 x="),
    Row("a member of another type is not let into a new group", ONE, Join("x", kind="connect"),
        INCONSISTENT, IS_ONE),
    Row("a member of another type with any id is not let into a new group", ONE, Join("x", kind="connect",
        is_known=True), INCONSISTENT, IS_ONE),
    Row("a member without an assignor is not let into a new group", ONE, Join("x", wants=""),
        INCONSISTENT, IS_ONE),
    Row("a member without a subscription is not let into a new group", ONE, Join("x", says=OTHER),
        INCONSISTENT, IS_ONE),
    Row("a classic member's assignor has to fit that of the others", JOINED, Join("x",
        wants="roundrobin"), INCONSISTENT, IS_JOINED),
)

# -- offsets -----------------------------------------------------------------------------------------

_COMMITS: tuple[tuple[Steps, str, int, str, str], ...] = (
    # In which group, who, in which generation, what it is told, and in a transaction (KIP-447).
    ((), "", -1, OK, OK),
    ((), "a", -1, OK, OK),
    ((), "a", 1, NO_GROUP, NO_GROUP),
    ((), "", 0, NO_GROUP, NO_GROUP),
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
    (ONE, "a", 1, STALE, STALE),
    (ONE, "a", 3, STALE, STALE),
    (ONE, "a", -1, STALE, STALE),
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
MORE: Steps = (*TOLD, enter("c"), enter("d"), Hello("a", owns="01"), Hello("b"))
"""The first has given up 2 and 3, and has to give up 1, too: it is still in epoch 2."""
GOT_BACK: Steps = (*SHARED, Hello("b", -1), Hello("a"))
_OLDER: tuple[tuple[Steps, str, int, str, str, str], ...] = (
    # As above, with the partitions that it commits: it keeps them, or has given one up since (KIP-1251).
    (GAVE, "a", 2, "01", OK, OK),
    (GAVE, "a", 2, "2", STALE, STALE),
    (GAVE, "a", 2, "02", STALE, STALE),
    (GAVE, "a", 1, "0", STALE, STALE),
    (GAVE, "a", -1, "0", STALE, STALE),
    (MORE, "a", 2, "0", OK, OK),
    (MORE, "a", 2, "2", STALE, STALE),  # Kafka accepts it beside the new owner's.
    (MORE, "a", 2, "3", OK, OK),  # Nobody has it yet, and its owner will begin at this offset.
    (LATE, "a", 2, "01", OK, OK),  # It still has to give up 1.
    (LATE, "a", 2, "2", STALE, STALE),
    (GOT_BACK, "a", 2, "01", OK, OK),
    (GOT_BACK, "a", 3, "2", STALE, STALE),
    ((*TOLD, Hello("b", -1), Hello("a", owns="01")), "a", 2, "2", STALE, STALE),
    (AWAY, "a", 2, "0", STALE, STALE),
    (BACK, "b", 1, "0", STALE, STALE),  # Kafka accepts it.
    ((*OWES, enter("c", "i")), "c", 2, "01", STALE, STALE),  # Kafka accepts it.
    ((*OWES, enter("c", "i")), "c", 2, "2", STALE, STALE),
    ((*ANEW, Hello("a"), Hello("a", owns="")), "a", 2, "0", STALE, STALE),
    (JOINED, "old", 1, "01", ILLEGAL, ILLEGAL),  # Kafka accepts it.
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
