"""Who may go on: producer ids, epochs, and the fencing of the older of two producers."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.check import Subject
from tests.conformance.double import (
    FENCED,
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


def _fenced(double: Double, prepare: Callable[[Producer], object] = lambda _: None) -> Producer:
    """A producer in a transaction, whose transactional id another one has taken."""
    first = started(double)
    first.begin()
    first.send("of the first")
    prepare(first)
    started(double)
    return first


@SUBJECT.check(
    "A second producer with the same `transactional.id` fences the first: commit is refused",
    "KIP-98 `PRODUCER_FENCED`",
)
def a_fenced_commit_is_refused(double: Double) -> None:
    expect_refused(double, "the commit", _fenced(double).commit, FENCED)


@SUBJECT.check("A fenced producer's abort is refused", "KIP-98 `PRODUCER_FENCED`")
def a_fenced_abort_is_refused(double: Double) -> None:
    expect_refused(double, "the abort", _fenced(double).abort, FENCED)


@SUBJECT.check("A fenced producer's records are refused", "KIP-98 `INVALID_PRODUCER_EPOCH`")
def a_fenced_send_is_refused(double: Double) -> None:
    first = _fenced(double)
    expect_refused(double, "the record", lambda: first.send("late"), FENCED)


@SUBJECT.check("A fenced producer's offsets are refused", "KIP-98 TxnOffsetCommit")
def fenced_offsets_are_refused(double: Double) -> None:
    first = _fenced(double)
    member = double.member("g")
    expect_refused(double, "the offset", lambda: first.send_offset(1, member), FENCED)


@SUBJECT.check("A fenced producer's next transaction is refused", "KIP-98 `PRODUCER_FENCED`")
def a_fenced_producer_cannot_begin_anew(double: Double) -> None:
    first = started(double)
    started(double)

    def transact() -> None:
        first.begin()
        first.send("late")
        first.commit()

    expect_refused(double, "the transaction", transact, FENCED)


@SUBJECT.check("No record of a fenced producer becomes visible", "KIP-98 zombie fencing")
def no_record_of_a_zombie_becomes_visible(double: Double) -> None:
    zombie = started(double)
    zombie.begin()
    zombie.send("before the fence")
    second = started(double)
    for attempt in (lambda: zombie.send("after the fence"), zombie.commit):
        is_refused(double, attempt, FENCED)
    second.begin()
    second.send("of the second")
    second.commit()
    expect("what is read", double.read(), ["of the second"])


@SUBJECT.check(
    "The init of the second aborts the transaction that the first left open",
    "KIP-98 `PrepareEpochFence`",
)
def an_init_aborts_what_was_open(double: Double) -> None:
    first = started(double)
    first.begin()
    first.send("left open")
    plain(double).send("after")
    started(double)
    expect("what is read", double.read(), ["after"])


@SUBJECT.check("Producers with different `transactional.id`s leave each other alone", "KIP-98")
def other_transactional_ids_are_left_alone(double: Double) -> None:
    first = started(double, "a")
    first.begin()
    first.send("of a")
    second = started(double, "b")
    second.begin()
    second.send("of b")
    first.commit()
    second.commit()
    expect("what is read", double.read(), ["of a", "of b"])


@SUBJECT.check("Producer ids are unique", "KIP-98 `ProducerIdManager`")
def producer_ids_are_unique(double: Double) -> None:
    ids = {started(double, name).identity().producer_id for name in "abcde"}
    expect("the number of ids of five producers", len(ids), 5)


@SUBJECT.check(
    "With each init the producer id stays and the epoch rises", "KIP-98 `TransactionMetadata`"
)
def the_epoch_rises_with_each_init(double: Double) -> None:
    first, second = (started(double).identity() for _ in range(2))
    forbid("the second init gets another producer id", second.producer_id != first.producer_id)
    forbid("the epoch does not rise", second.epoch <= first.epoch)
