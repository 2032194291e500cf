"""What requests make of a classic group: the first part of the table, and the words that its parts share.

The rules are Kafka 4.4.0's (ClassicGroup, GroupMetadataManager), but for a row that says so.
"""

from __future__ import annotations

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
    Join,
    Leave,
    Row,
    Step,
    Sync,
    Topic,
    Wait,
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

FORMING: Steps = (Join("a"),)  # One has joined.
ALONE: Steps = (*FORMING, Sync("a", "a=0123"))  # One leads and has all.
SECOND: Steps = (*ALONE, Join("b"))  # A second one waits.
FORMED: Steps = (*SECOND, Join("a"))  # Both are in generation 2, not synced.
PAIR: Steps = (*FORMED, Sync("a", "a=01 b=23"))  # Both have their shares.
THIRD: Steps = (*PAIR, Join("c"))  # A third one waits.
STATIC: Steps = (*ALONE, Join("b", "w"), Join("a"), Sync("a", "a=01 b=23"))
"""The second is the static member "w"."""
TAKEN: Steps = (*STATIC, Join("b2", "w"))  # The static member has come back.
# The static member leads.
LEADING: Steps = (Join("a", "w"), Sync("a", "a=0123"), Join("b"), Join("a", "w"), Sync("a", "a=01 b=23"))
MISSED: Steps = (*STATIC, Join("c"), Join("a"), Wait(60_001))
"""The static member has not joined again in time."""
SHARED_OUT: Steps = (*MISSED, Sync("a", "a=0 b=1 c=2"))
IS_SHARED_OUT = "Stable 3 a=0 b=1 c=2"
IS_PAIR, IS_ALONE, IS_STATIC = "Stable 2 a=01 b=23", "Stable 1 a=0123", "Stable 2 a=01 b2=23"
IS_SECOND, IS_FORMED = "PreparingRebalance 1 a=0123 b=", "CompletingRebalance 2 a=0123 b="
IS_THIRD = "PreparingRebalance 2 a=01 b=23 c="
SHORT: Steps = (Join("a", session_ms=10_000), Sync("a", "a=0123"))  # Alone, with a session of 10 s.
# A third one waits; the rebalance time-outs differ.
PATIENT: Steps = (
    Join("a", rebalance_ms=90_000), Sync("a"), Join("b", rebalance_ms=10_000),
    Join("a", rebalance_ms=90_000), Sync("a", "a=01 b=23"), Join("c", rebalance_ms=5_000),
)
BOTH = "range roundrobin"

CLASSIC = (
    Row("the first to join leads", (), Join("a"), "1 range, a leads", "CompletingRebalance 1 a="),
    Row("the leader's sync makes the group stable", FORMING, Sync("a", "a=0123"), "0123", IS_ALONE),
    Row("a second member's join waits for the first", ALONE, Join("b"), WAITS, IS_SECOND),
    Row("a join that waits may be asked again", SECOND, Join("b"), WAITS, IS_SECOND),
    Row("a member's heartbeat tells it that a rebalance waits for it", SECOND, Beat("a"), REBALANCING,
        IS_SECOND),
    Row("a member's sync tells it that a rebalance waits for it", SECOND, Sync("a"), REBALANCING,
        IS_SECOND),
    Row("when all have joined there is a new generation", SECOND, Join("a"), "2 range, a leads",
        IS_FORMED),
    Row("a join that has waited is answered with the new generation", FORMED, Join("b"),
        "2 range, a leads", IS_FORMED),
    Row("a leader that joins again before its sync gets the same answer", FORMED, Join("a"),
        "2 range, a leads", IS_FORMED),
    Row("a formed generation is no rebalance", FORMED, Beat("b"), OK, IS_FORMED),
    Row("a follower's sync waits and assigns nothing", FORMED, Sync("b", "b=0123"), WAITS, IS_FORMED),
    Row("the leader's sync assigns", FORMED, Sync("a", "a=01 b=23"), "01", IS_PAIR),
    Row("a follower's sync gets its share once the leader has assigned", PAIR, Sync("b"), "23", IS_PAIR),
    Row("a second sync of the leader assigns nothing", PAIR, Sync("a", "a=23 b=01"), "01", IS_PAIR),
    Row("a follower that asks again changes nothing", PAIR, Join("b"), "2 range, a leads", IS_PAIR),
    Row("the leader that joins again begins a rebalance", PAIR, Join("a"), WAITS,
        "PreparingRebalance 2 a=01 b=23"),
    Row("a follower that joins for more topics begins a rebalance", PAIR, Join("b", topics="t u"), WAITS,
        "PreparingRebalance 2 a=01 b=23"),
    Row("a sole member that joins again forms the next generation at once", ALONE, Join("a"),
        "2 range, a leads",
        "CompletingRebalance 2 a=0123"),
    # Deadlines.
    Row("a rebalance waits until its deadline", (*THIRD, Join("b"), Wait(60_000)), Join("c"), WAITS,
        IS_THIRD),
    Row("after its deadline a rebalance goes on without who has not joined", (*THIRD, Join("b"),
        Wait(60_001)), Join("c"),
        "3 range, b leads", "CompletingRebalance 3 b=23 c="),
    Row("a leader may sync until the deadline", (*FORMED, Wait(60_000)), Join("b"), "2 range, a leads",
        IS_FORMED),
    Row("a leader that has not synced by its deadline is replaced", (*FORMED, Wait(60_001)), Join("b"),
        "3 range, b leads",
        "CompletingRebalance 3 b="),
    Row("once the leader has synced no deadline is left", (*PAIR, Wait(60_001)), Beat("a"), OK, IS_PAIR),
    Row("the longest rebalance time-out counts", (*PATIENT, Wait(90_000)), Join("c"), WAITS, IS_THIRD),
    Row("joins do not extend the deadline of a rebalance",
        (*PATIENT, Wait(50_000), Join("b", rebalance_ms=10_000), Wait(40_001)), Join("c"),
        "3 range, b leads", "CompletingRebalance 3 b=23 c="),
    # Sessions.
    Row("a session lasts its time-out", (*SHORT, Wait(10_000)), Beat("a"), OK, IS_ALONE),
    Row("after its session's time-out a member is gone", (*SHORT, Wait(10_001)), Beat("a"), GONE,
        "Empty 2"),
    Row("a heartbeat renews a session", (*SHORT, Wait(9_000), Beat("a"), Wait(9_000)), Beat("a"), OK,
        IS_ALONE),
    Row("a removed member cannot join with its old id", (*SHORT, Wait(10_001)), Join("a", is_known=True),
        GONE,
        "Empty 2"),
    # Leaving.
    Row("when one leaves the others begin a rebalance", PAIR, Leave("b"), OK, "PreparingRebalance 2 a=01"),
    Row("when the leader leaves the others begin a rebalance", PAIR, Leave("a"), OK,
        "PreparingRebalance 2 b=23"),
    Row("after the leader has left another leads", (*PAIR, Leave("a")), Join("b"), "3 range, b leads",
        "CompletingRebalance 3 b=23"),
    Row("when the last one leaves the group is empty", ALONE, Leave("a"), OK, "Empty 2"),
    Row("an empty group takes any assignor", (*ALONE, Leave("a")), Join("b", wants="roundrobin"),
        "3 roundrobin, b leads", "CompletingRebalance 3 b="),
    Row("when the member that was waited for leaves the generation is formed", SECOND, Leave("a"), OK,
        "CompletingRebalance 2 b="),
    Row("a member that has left cannot leave again", (*PAIR, Leave("b")), Leave("b"), GONE,
        "PreparingRebalance 2 a=01"),
    Row("a static member is removed by its instance", STATIC, Leave("", "w"), OK,
        "PreparingRebalance 2 a=01"),
    Row("an instance that nobody has cannot be removed", STATIC, Leave("", "x"), GONE, IS_PAIR),
    Row("an instance is not removed under another member's id", STATIC, Leave("x", "w"), FENCED_INSTANCE,
        IS_PAIR),
    # What does not fit.
    Row("a member without an assignor in common is refused", ALONE, Join("b", wants="roundrobin"),
        INCONSISTENT, IS_ALONE),
    Row("a member of another protocol type is refused", ALONE, Join("b", kind="connect"), INCONSISTENT,
        IS_ALONE),
    Row("the first member must name a protocol type", (), Join("b", kind=""), INCONSISTENT, NONE),
    Row("the first member must name an assignor", (), Join("b", wants=""), INCONSISTENT, NONE),
    Row("a sole member may not change its only assignor", ALONE, Join("a", wants="roundrobin"),
        INCONSISTENT, IS_ALONE),
    Row("a sole member may not change its protocol type", ALONE, Join("a", kind="connect"), INCONSISTENT,
        IS_ALONE),
    Row("a sole member may support more assignors", ALONE, Join("a", wants="range x"), "2 range, a leads",
        "CompletingRebalance 2 a=0123"),
    Row("a member that does not fit learns it before its id is looked at", ALONE,
        Join("x", kind="connect", is_known=True),
        INCONSISTENT, IS_ALONE),
    Row("a sync that names another assignor is refused", FORMING, Sync("a", name="sticky"), INCONSISTENT,
        "CompletingRebalance 1 a="),
    Row("a sync that names another protocol type is refused", FORMING, Sync("a", kind="connect"),
        INCONSISTENT, "CompletingRebalance 1 a="),
    Row("a heartbeat of a past generation is refused", ALONE, Beat("a", 0), ILLEGAL, IS_ALONE),
    Row("a heartbeat of a future generation is refused", ALONE, Beat("a", 2), ILLEGAL, IS_ALONE),
    Row("a sync of a past generation is refused", ALONE, Sync("a", generation=0), ILLEGAL, IS_ALONE),
    Row("a sync of a future generation is refused", ALONE, Sync("a", generation=2), ILLEGAL, IS_ALONE),
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
    Row("a member of no group is unknown", (), Beat("x", 1), GONE, NONE),
    Row("an id that was never given out is unknown", ALONE, Join("x", is_known=True), GONE, IS_ALONE),
    Row("an instance that nobody has is unknown", STATIC, Beat("a", instance="x"), GONE, IS_PAIR),
    # Static members (KIP-345).
    Row("a static member returns without a rebalance", STATIC, Join("b2", "w"), "2 range, a leads",
        IS_STATIC),
    Row("a static member that returned has what it had", TAKEN, Sync("b2", instance="w"), "23", IS_STATIC),
    Row("a heartbeat of a static member's former self is fenced", TAKEN, Beat("b", 2, "w"),
        FENCED_INSTANCE, IS_STATIC),
    Row("a join of a static member's former self is fenced", TAKEN, Join("b", "w", is_known=True),
        FENCED_INSTANCE, IS_STATIC),
    Row("a commit of a static member's former self is fenced", TAKEN, Commit("b", 2, "w"),
        FENCED_INSTANCE, IS_STATIC),
    Row("a static member that returned is not fenced", TAKEN, Beat("b2", instance="w"), OK, IS_STATIC),
    Row("a static leader that returns leads", LEADING, Join("a2", "w"), "2 range, a2 leads",
        "Stable 2 a2=01 b=23"),
    Row("a static member that returns for more topics begins a rebalance", STATIC, Join("b2", "w",
        topics="t u"), WAITS,
        "PreparingRebalance 2 a=01 b2=23"),
    Row("a static member that returns with partitions begins no rebalance", STATIC, Join("b2", "w",
        owns="23"), "2 range, a leads",
        IS_STATIC),
    Row("a static member that returns with another preference begins a rebalance", (Join("a", "w",
        wants=BOTH), Sync("a")),
        Join("a2", "w", wants="roundrobin range"),
        "2 roundrobin, a2 leads", "CompletingRebalance 2 a2="),
    Row("a static member is not left behind", MISSED, Join("c"),
        "3 range, a leads", "CompletingRebalance 3 a=01 b=23 c="),
    Row("a static member that was missed is in the generation once it asks", MISSED, Join("b", "w"),
        "3 range, a leads",
        "CompletingRebalance 3 a=01 b=23 c="),
    Row("a static member that asks after the assignment is in the generation", SHARED_OUT, Join("b", "w"),
        "3 range, a leads", IS_SHARED_OUT),
    Row("a static member that asks after the assignment may have another id", SHARED_OUT, Join("b2", "w"),
        "3 range, a leads", "Stable 3 a=0 b2=1 c=2"),
    Row("a static member's heartbeat need not name its instance", STATIC, Beat("b"), OK, IS_PAIR),
    Row("a static member that joins without its instance keeps it", (*STATIC, Join("b", topics="t u")),
        Beat("b", instance="w"),
        REBALANCING, "PreparingRebalance 2 a=01 b=23"),
    # Deleting offsets.
    Row("offsets that a member reads stay", ALONE, DeleteOffset("t"), SUBSCRIBED, IS_ALONE),
    Row("offsets that no member reads are deleted", (Topic("u", 1), *ALONE), DeleteOffset("u"), OK,
        IS_ALONE),
    Row("the offsets of a member that does not say what it reads stay", (Join("a", says=b"?"),),
        DeleteOffset("t"), SUBSCRIBED,
        "CompletingRebalance 1 a="),
    Row("the offsets of a group of another type stay while it has members", (Join("a", kind="connect"),),
        DeleteOffset("t"), "NON_EMPTY_GROUP",
        "CompletingRebalance 1 a="),
    Row("the offsets of an empty group of another type are deleted", (Join("a", kind="connect"),
        Leave("a")), DeleteOffset("t"), OK,
        "Empty 2"),
    Row("the offsets of an empty group are deleted", (*ALONE, Leave("a")), DeleteOffset("t"), OK,
        "Empty 2"),
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
# fmt: on
