"""The request level: sequences, epochs and repeats, as a bad network would bring them."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.conformance.check import Subject
from tests.conformance.double import (
    FENCED,
    Double,
    Identity,
    Requests,
    expect,
    expect_refused,
    forbid,
    is_refused,
)

SUBJECT = Subject()

_LAST_SEQUENCE: Final = 2**31 - 1
_OUT_OF_ORDER: Final = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER"})
_NOT_OPEN: Final = frozenset({"INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH"})


def _in_transaction(requests: Requests, identity: Identity, values: list[str]) -> int:
    """The values as the first batch of a transaction."""
    requests.add_partition("a", identity)
    return requests.append(identity, 0, values, "a")


@SUBJECT.check("A repeated batch gets its original offset", "KIP-98 `findDuplicateBatch`")
def a_repeated_batch_gets_its_original_offset(double: Double) -> None:
    requests = double.requests()
    me = requests.identity()
    offsets = [requests.append(me, sequence, ["v"]) for sequence in (0, 1, 0, 1)]
    expect("the answers", offsets, [0, 1, 0, 1])


@SUBJECT.check("A repeated batch is not stored twice", "KIP-98 idempotent producer")
def a_repeated_batch_is_stored_once(double: Double) -> None:
    requests = double.requests()
    me = requests.identity()
    for _ in range(3):
        requests.append(me, 0, ["one", "two"])
    requests.append(me, 2, ["three"])
    expect("what is read", double.read(), ["one", "two", "three"])


@SUBJECT.check(
    "Each of the last five batches is known again", "`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`"
)
def five_batches_are_remembered(double: Double) -> None:
    requests = double.requests()
    me = requests.identity()
    for sequence in range(6):
        requests.append(me, sequence, [str(sequence)])
    repeats = [requests.append(me, sequence, [str(sequence)]) for sequence in range(1, 6)]
    expect("the answers", repeats, [1, 2, 3, 4, 5])


@SUBJECT.check("A gap in the sequences is refused", "KIP-98 `OUT_OF_ORDER_SEQUENCE_NUMBER`")
def a_gap_is_refused(double: Double) -> None:
    requests = double.requests()
    me = requests.identity()
    requests.append(me, 0, ["one"])
    expect_refused(double, "a gap", lambda: requests.append(me, 2, ["three"]), _OUT_OF_ORDER)
    requests.append(me, 1, ["two"])
    expect("what is read", double.read(), ["one", "two"])


@SUBJECT.check("After sequence 2147483647 comes 0", "`DefaultRecordBatch.incrementSequence`")
def sequences_wrap(double: Double) -> None:
    requests = double.requests()
    me = requests.identity()
    requests.append(me, _LAST_SEQUENCE - 1, ["one", "two"])
    expect_refused(double, "a gap", lambda: requests.append(me, 1, ["four"]), _OUT_OF_ORDER)
    requests.append(me, 0, ["three"])
    repeated = requests.append(me, _LAST_SEQUENCE - 1, ["one", "two"])
    expect("the answer to a repeat", repeated, 0)
    expect("what is read", double.read(), ["one", "two", "three"])


@SUBJECT.check("A batch with an older epoch is refused", "KIP-98 `INVALID_PRODUCER_EPOCH`")
def an_older_epoch_is_refused(double: Double) -> None:
    requests = double.requests()
    old = requests.identity("a")
    _in_transaction(requests, old, ["old"])
    requests.end("a", old, committed=True)
    new = requests.identity("a")
    _in_transaction(requests, new, ["new"])
    late = partial(requests.append, old, 1, ["late"], "a")
    expect_refused(double, "the batch", late, FENCED)


@SUBJECT.check("A new epoch must begin at sequence 0", "KIP-360 `ProducerAppendInfo`")
def a_new_epoch_begins_at_0(double: Double) -> None:
    requests = double.requests()
    old = requests.identity("a")
    _in_transaction(requests, old, ["one"])
    requests.end("a", old, committed=True)
    new = requests.identity("a")
    requests.add_partition("a", new)
    going_on = partial(requests.append, new, 1, ["two"], "a")
    expect_refused(double, "sequence 1", going_on, _OUT_OF_ORDER)
    requests.append(new, 0, ["two"], "a")
    requests.end("a", new, committed=True)
    expect("what is read", double.read(), ["one", "two"])


@SUBJECT.check(
    "A batch that comes after the end of its transaction is refused", "KIP-890 verification"
)
def a_late_batch_is_refused(double: Double) -> None:
    requests = double.requests()
    me = requests.identity("a")
    _in_transaction(requests, me, ["in time"])
    requests.end("a", me, committed=True)
    late = partial(requests.append, me, 1, ["late"], "a")
    expect_refused(double, "the batch", late, _NOT_OPEN)
    expect("what is read", double.read(), ["in time"])


@SUBJECT.check("With each end of a transaction the epoch rises", "KIP-890 EndTxn v5")
def the_epoch_rises_with_each_end(double: Double) -> None:
    requests = double.requests()
    me = requests.identity("a")
    for value, committed in (("one", True), ("aborted", False), ("two", True)):
        _in_transaction(requests, me, [value])
        after = requests.end("a", me, committed=committed)
        forbid("the epoch does not rise", after.epoch <= me.epoch)
        me = after
    expect("what is read", double.read(), ["one", "two"])


@SUBJECT.check("A repeated commit gets the same answer", "`TransactionCoordinator.endTransaction`")
def a_repeated_commit_gets_the_same_answer(double: Double) -> None:
    requests = double.requests()
    me = requests.identity("a")
    _in_transaction(requests, me, ["v"])
    answers = [requests.end("a", me, committed=True) for _ in range(2)]
    forbid("the second answer is another one", answers[0] != answers[1])
    expect("what is read", double.read(), ["v"])


@SUBJECT.check("An abort after the commit is refused", "KIP-98 `INVALID_TXN_STATE`")
def an_abort_after_the_commit_is_refused(double: Double) -> None:
    requests = double.requests()
    me = requests.identity("a")
    _in_transaction(requests, me, ["v"])
    requests.end("a", me, committed=True)
    abort = partial(requests.end, "a", me, committed=False)
    expect_refused(double, "the abort", abort, frozenset({"INVALID_TXN_STATE"}))
    expect("what is read", double.read(), ["v"])


@SUBJECT.check("A batch of a fenced producer never joins a transaction", "KIP-890 zombie requests")
def a_zombies_batch_joins_nothing(double: Double) -> None:
    requests = double.requests()
    old = requests.identity("a")
    new = requests.identity("a")
    for attempt in (
        lambda: requests.add_partition("a", old),
        lambda: requests.append(old, 0, ["of the zombie"], "a"),
    ):
        is_refused(double, attempt, FENCED)
    _in_transaction(requests, new, ["new"])
    requests.end("a", new, committed=True)
    expect("what is read", double.read(), ["new"])
