"""Offsets of consumer groups, inside of transactions and outside."""

from __future__ import annotations

from functools import partial

from tests.conformance.check import Subject
from tests.conformance.double import (
    Double,
    Producer,
    expect,
    expect_refused,
    forbid,
    is_refused,
    plain,
    started,
)

SUBJECT = Subject()


def _holding_an_offset(double: Double) -> Producer:
    """A producer whose open transaction takes the group's offset from 1 to 5."""
    double.commit_offset("g", 1)
    producer = started(double)
    producer.begin()
    producer.send_offset(5, double.member("g"))
    return producer


@SUBJECT.check("Offsets outside of transactions are stored", "OffsetCommit")
def plain_offsets_are_stored(double: Double) -> None:
    double.commit_offset("g", 3)
    expect("the offset", double.committed_offset("g"), 3)
    expect("the offset of another group", double.committed_offset("other"), None)


@SUBJECT.check("A group goes on where it committed, another one does not", "OffsetFetch")
def a_group_goes_on_where_it_committed(double: Double) -> None:
    producer = plain(double)
    producer.send("one")
    expect("what the group reads first", double.read_on("g"), ["one"])
    producer.send("two")
    expect("what the group reads next", double.read_on("g"), ["two"])
    expect("what another group reads", double.read_on("other"), ["one", "two"])


@SUBJECT.check(
    "Offsets sent to a transaction become the group's when it commits, not before",
    "KIP-98 TxnOffsetCommit",
)
def offsets_are_stored_on_commit(double: Double) -> None:
    producer = _holding_an_offset(double)
    expect("the offset before the commit", double.committed_offset("g"), 1)
    producer.commit()
    expect("the offset after the commit", double.committed_offset("g"), 5)


@SUBJECT.check("Offsets sent to a transaction are dropped when it aborts", "KIP-98")
def offsets_are_dropped_on_abort(double: Double) -> None:
    _holding_an_offset(double).abort()
    expect("the offset after the abort", double.committed_offset("g"), 1)


@SUBJECT.check("Records and offsets of a transaction share its outcome", "KIP-98, KIP-129")
def records_and_offsets_share_the_outcome(double: Double) -> None:
    producer = _holding_an_offset(double)
    producer.send("aborted")
    producer.abort()
    expect("after the abort", (double.read(), double.committed_offset("g")), ([], 1))
    producer.begin()
    producer.send("committed")
    producer.send_offset(7, double.member("g"))
    producer.commit()
    seen = (double.read(), double.committed_offset("g"))
    expect("after the commit", seen, (["committed"], 7))


@SUBJECT.check(
    "Who asks for stable offsets is kept waiting while one is pending",
    "KIP-447 `UNSTABLE_OFFSET_COMMIT`",
)
def pending_offsets_are_seen(double: Double) -> None:
    producer = _holding_an_offset(double)
    names = frozenset({"UNSTABLE_OFFSET_COMMIT", "_TIMED_OUT"})
    ask = partial(double.committed_offset, "g", stable=True)
    forbid("the old offset is told at once", not is_refused(double, ask, names))
    producer.commit()
    expect("the offset after the commit", ask(), 5)


@SUBJECT.check(
    "Offsets of a member that is no longer in the group are refused", "KIP-447 TxnOffsetCommit v3"
)
def offsets_of_a_departed_member_are_refused(double: Double) -> None:
    member = double.departed_member("g")
    producer = started(double)
    producer.begin()
    names = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "GROUP_ID_NOT_FOUND"})
    expect_refused(double, "the offset", lambda: producer.send_offset(5, member), names)
