"""What readers see of transactions: isolation levels, the last stable offset, lookups by time."""

from __future__ import annotations

from tests.conformance.check import Subject
from tests.conformance.double import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Double,
    expect,
    plain,
    started,
)

SUBJECT = Subject()


@SUBJECT.check("Aborted records are hidden from `read_committed`", "KIP-98 `AbortedTxn`")
def aborted_records_are_hidden(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("aborted")
    producer.abort()
    producer.begin()
    producer.send("kept")
    producer.commit()
    expect("what is read", double.read(), ["kept"])


@SUBJECT.check(
    "Records of an open transaction are hidden until it commits", "KIP-98 `lastStableOffset`"
)
def open_records_are_hidden(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("open")
    expect("what is read before the commit", double.read(), [])
    producer.commit()
    expect("what is read after the commit", double.read(), ["open"])


@SUBJECT.check(
    "What follows an open transaction is held back, then read in order",
    "KIP-98 `lastStableOffset`",
)
def an_open_transaction_holds_back_what_follows(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("open")
    plain(double).send("after")
    expect("what is read before the commit", double.read(), [])
    producer.commit()
    expect("what is read after the commit", double.read(), ["open", "after"])


@SUBJECT.check("A transaction becomes visible in all its partitions together", "KIP-98 EndTxn")
def partitions_become_visible_together(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("left", partition=0)
    producer.send("right", partition=1)
    expect("what is read before the commit", [double.read(0), double.read(1)], [[], []])
    producer.commit()
    seen = [double.read(0), double.read(1)]
    expect("what is read after the commit", seen, [["left"], ["right"]])


@SUBJECT.check("Only the aborted producer's records are left out", "KIP-98 `CompletedFetch`")
def only_the_aborted_producers_records_are_left_out(double: Double) -> None:
    aborting, committing, other = started(double, "a"), started(double, "b"), plain(double)
    aborting.begin()
    committing.begin()
    aborting.send("aborted 1")
    committing.send("committed")
    other.send("plain")
    aborting.send("aborted 2")
    aborting.abort()
    committing.commit()
    expect("what is read", double.read(), ["committed", "plain"])


@SUBJECT.check("`read_uncommitted` sees everything, in order", "KIP-98 `IsolationLevel`")
def read_uncommitted_sees_everything(double: Double) -> None:
    ending, staying = started(double, "a"), started(double, "b")
    ending.begin()
    ending.send("aborted")
    ending.abort()
    ending.begin()
    ending.send("committed")
    ending.commit()
    staying.begin()
    staying.send("open")
    seen = double.read(isolation=READ_UNCOMMITTED)
    expect("what is read", seen, ["aborted", "committed", "open"])


@SUBJECT.check("The order of each partition is kept over several transactions", "KIP-98")
def order_is_kept(double: Double) -> None:
    producer = started(double)
    for first in (0, 10, 20):
        producer.begin()
        for number in range(first, first + 10):
            producer.send(str(number), partition=number % 2)
        producer.commit()
    expect("partition 0", double.read(0), [str(number) for number in range(0, 30, 2)])
    expect("partition 1", double.read(1), [str(number) for number in range(1, 30, 2)])


@SUBJECT.check(
    "The end offset under `read_committed` is the last stable offset", "KIP-98 ListOffsets"
)
def the_end_offset_is_the_last_stable_offset(double: Double) -> None:
    plain(double).send("plain")
    producer = started(double)
    producer.begin()
    producer.send("open")
    expect("the end for read_uncommitted", double.end_offset(READ_UNCOMMITTED), 2)
    expect("the end for read_committed", double.end_offset(READ_COMMITTED), 1)


@SUBJECT.check("A lookup by time finds the first record from then on", "KIP-79 ListOffsets")
def lookups_by_time(double: Double) -> None:
    producer = plain(double)
    for value, timestamp in (("one", 1_000), ("two", 2_000), ("three", 2_000)):
        producer.send(value, timestamp=timestamp)
    expect("the offset for 1500 ms", double.offset_at(1_500, READ_COMMITTED), 1)
    expect("the offset for 2001 ms", double.offset_at(2_001, READ_COMMITTED), None)


@SUBJECT.check(
    "A lookup by time under `read_committed` ends at the last stable offset",
    "KIP-98 `fetchOffsetForTimestamp`",
)
def lookups_by_time_stop_at_the_last_stable_offset(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("open", timestamp=1_000)
    expect("the offset for read_uncommitted", double.offset_at(1_000, READ_UNCOMMITTED), 0)
    expect("the offset for read_committed", double.offset_at(1_000, READ_COMMITTED), None)
