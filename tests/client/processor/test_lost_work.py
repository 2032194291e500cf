"""What was begun is done anew, once, when its membership, producer or transaction is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, ManualClock
from eosdb.client.transport import DirectTransport
from eosdb.model.requests import EndTxn, Request
from eosdb.model.threads import Fate
from tests.client.processor.work import Run, feed, upper, values

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    db.admin.create_topic("in", partitions=2)
    db.admin.create_topic("out", partitions=2)


def test_whoever_lost_its_membership_repeats_nothing(
    db: eosdb.Database, clock: ManualClock, run: Run
) -> None:
    taken_over = False

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal taken_over
        if not taken_over:
            taken_over = True
            clock.advance(
                45_001
            )  # Long enough for the session to end, and for another to take over.
            run(upper)
        return upper(record)

    feed(db, b"a", b"b")
    report = run(handle)
    assert values(db) == [b"A", b"B"]
    assert report.aborts == 1
    assert report.metrics["errors-total:UNKNOWN_MEMBER_ID"] >= 1


def test_a_membership_lost_and_regained_within_one_poll_repeats_nothing(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """What was processed before belongs to an old generation, and must not be committed in the new."""
    lost = False

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal lost
        if record.value == b"a" and not lost:
            lost = True
            clock.advance(45_001)
            db.housekeeping()
            assert db.broker.describe_group("g").state == "Empty"
        return upper(record)

    feed(db, b"a", b"b")
    processor = db.processor(
        "in",
        handle,
        "out",
        group_id="g",
        transactional_id="tx",
        transaction_interval_ms=46_000,
        consumer={"max_poll_records": 1},
    )
    processor.run(until_idle_ms=50)
    assert values(db) == [b"A", b"B"]


@pytest.mark.parametrize("loss", ["fenced", "expired"])
def test_a_producer_that_has_lost_its_id_is_replaced_and_the_work_done_anew(
    db: eosdb.Database, clock: ManualClock, run: Run, loss: str
) -> None:
    """No other copy has this id, and the group decides who commits, so a new producer doubles nothing."""
    lost = False

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal lost
        if record.value == b"b" and not lost:
            lost = True
            if loss == "fenced":
                (listing,) = db.broker.list_transactions()
                db.broker.init_producer_id(listing.transactional_id)
            else:
                clock.advance(2_000)
                hasty = eosdb.BrokerConfig(transactional_id_expiration_ms=1_000)
                with eosdb.connect(db.path, clock=clock, config=hasty) as other:
                    other.housekeeping()
        return upper(record)

    feed(db, b"a", b"b")
    report = run(handle, transaction_size=1)
    assert values(db) == [b"A", b"B"]
    assert report.aborts == 1
    assert report.metrics.get("errors-total:INVALID_PRODUCER_ID_MAPPING", 0) == (loss == "expired")


@pytest.mark.parametrize("loss", ["fenced", "lost", "locked"])
def test_what_was_read_beside_a_failed_commit_is_not_passed_over(
    db: eosdb.Database, clock: ManualClock, loss: str
) -> None:
    """The commit in the middle of what a poll returned fails; the rest is of another partition."""
    happened = False

    class Locked(DirectTransport):
        def ask(
            self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
        ) -> list[Any]:
            nonlocal happened
            if requests[0].name == "txn_offset_commit" and loss == "locked" and not happened:
                happened = True
                return [eosdb.UnstableOffsetCommitError("as if")]
            return super().ask(requests, sync=sync, fate=fate)

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal happened
        if not happened and loss != "locked":
            happened = True
            if loss == "fenced":
                (listing,) = db.broker.list_transactions()
                db.broker.init_producer_id(listing.transactional_id)
            else:
                clock.advance(45_001)
                db.housekeeping()
        clock.advance(200)
        return upper(record)

    for i in range(3):
        feed(db, b"a%d" % i, partition=0)
        feed(db, b"b%d" % i, partition=1)
    processor = db.processor(
        "in", handle, "out", group_id="g", transactional_id="tx", transport=Locked(db.broker)
    )
    processor.run(until_idle_ms=50)
    assert happened
    assert values(db) == [b"A0", b"A1", b"A2", b"B0", b"B1", b"B2"]


def test_a_transaction_that_timed_out_is_done_anew(
    db: eosdb.Database, clock: ManualClock, run: Run
) -> None:
    slow = True

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal slow
        if record.value == b"b" and slow:
            slow = False
            db.producer().send("in", b"noise", partition=1).result()
            clock.advance(30_000)
        return b"x" * 600_000 if record.value != b"noise" else b"N"

    feed(db, b"a", b"a", b"b")
    run(handle, producer={"transaction_timeout_ms": 20_000})
    assert [len(value) for value in values(db)].count(600_000) == 3  # type: ignore[arg-type]


def test_a_transaction_that_timed_out_before_its_commit_is_done_anew(
    db: eosdb.Database, clock: ManualClock
) -> None:
    class LateOnce:
        """It carries out one request after the other."""

        late, transaction_version = False, 2

        def ask(
            self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
        ) -> list[Any]:
            (request,) = requests
            if isinstance(request, EndTxn) and not self.late:
                self.late = True
                clock.advance(30_000)
            return [db.broker.ask(request)]

    feed(db, b"a")
    processor = db.processor(
        "in", upper, "out", group_id="g", transactional_id="tx", transport=LateOnce(),
        producer={"transaction_timeout_ms": 20_000},
    )  # fmt: skip
    processor.run(until_idle_ms=50)
    assert values(db) == [b"A"]
    assert processor.metrics()["errors-total:INVALID_TXN_STATE"] > 0
