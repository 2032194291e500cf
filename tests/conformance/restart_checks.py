"""What is still there after the process that holds the data has ended and begun again."""

from __future__ import annotations

from tests.conformance.check import Subject
from tests.conformance.double import READ_UNCOMMITTED, Double, expect, forbid, plain, started

SUBJECT = Subject()


@SUBJECT.check("Committed records survive a restart", "`acks=all`, `UnifiedLog`")
def committed_records_survive(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("committed")
    producer.commit()
    double.restart()
    expect("what is read", double.read(), ["committed"])


@SUBJECT.check("An open transaction survives a restart, hidden, until it is ended", "KIP-98")
def an_open_transaction_survives(double: Double) -> None:
    producer = started(double)
    producer.begin()
    producer.send("open")
    plain(double).send("after")
    double.restart()
    seen = double.read(isolation=READ_UNCOMMITTED)
    expect("what read_uncommitted reads", seen, ["open", "after"])
    expect("what read_committed reads", double.read(), [])
    started(double)
    expect("what read_committed reads after the next init", double.read(), ["after"])


@SUBJECT.check("A group's offsets survive a restart", "`__consumer_offsets`")
def offsets_survive(double: Double) -> None:
    double.commit_offset("g", 3)
    double.restart()
    expect("the offset", double.committed_offset("g"), 3)


@SUBJECT.check("Producer id and epoch go on after a restart", "`__transaction_state`")
def identities_survive(double: Double) -> None:
    before = started(double).identity()
    double.restart()
    after = started(double).identity()
    forbid("the producer id is another one", after.producer_id != before.producer_id)
    forbid("the epoch does not rise", after.epoch <= before.epoch)
