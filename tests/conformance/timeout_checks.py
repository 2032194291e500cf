"""What time does to transactions: `transaction.timeout.ms` and its upper bound.

Kafka's broker looks for timed-out transactions every 10 s, so the checks wait for longer than that.
"""

from __future__ import annotations

from typing import Final

from tests.conformance.check import Subject
from tests.conformance.double import (
    ENDED,
    FENCED,
    Double,
    Producer,
    expect,
    expect_refused,
    plain,
    started,
)

SUBJECT = Subject()

_TIMEOUT_MS: Final = 1_000
_LATER_MS: Final = 12_000
_TOO_LONG_MS: Final = 900_001


def _timed_out(double: Double) -> Producer:
    """A producer whose transaction has been open for longer than it may."""
    producer = started(double, timeout_ms=_TIMEOUT_MS)
    producer.begin()
    producer.send("timed out")
    double.wait(_LATER_MS)
    return producer


@SUBJECT.check(
    "A transaction is aborted at its timeout, and what follows it is read",
    "KIP-98 `transaction.timeout.ms`",
)
def a_transaction_is_aborted_at_its_timeout(double: Double) -> None:
    _timed_out(double)
    plain(double).send("after")
    expect("what is read", double.read(), ["after"])


@SUBJECT.check("A commit after the timeout is refused", "KIP-890 `INVALID_TXN_STATE`")
def a_commit_after_the_timeout_is_refused(double: Double) -> None:
    expect_refused(double, "the commit", _timed_out(double).commit, ENDED)


@SUBJECT.check("A record after the timeout is refused", "KIP-98 `INVALID_PRODUCER_EPOCH`")
def a_send_after_the_timeout_is_refused(double: Double) -> None:
    producer = _timed_out(double)
    expect_refused(double, "the record", lambda: producer.send("late"), FENCED)


@SUBJECT.check(
    "After a timeout a new producer goes on, without what timed out", "KIP-98 InitProducerId"
)
def a_new_producer_goes_on_after_a_timeout(double: Double) -> None:
    _timed_out(double)
    second = started(double)
    second.begin()
    second.send("of the second")
    second.commit()
    expect("what is read", double.read(), ["of the second"])


@SUBJECT.check(
    "A timeout above `transaction.max.timeout.ms` is refused",
    "KIP-98 `INVALID_TRANSACTION_TIMEOUT`",
)
def a_timeout_that_is_too_long_is_refused(double: Double) -> None:
    names = frozenset({"INVALID_TRANSACTION_TIMEOUT"})
    what = f"a timeout of {_TOO_LONG_MS} ms"
    expect_refused(double, what, lambda: started(double, timeout_ms=_TOO_LONG_MS), names)
