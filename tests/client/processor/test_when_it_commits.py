"""When a processor commits: after so many records, after so long, and as soon as nothing more waits."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock
from tests.client.processor.work import Run, feed, read, upper, values


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    db.admin.create_topic("in", partitions=2)
    db.admin.create_topic("out", partitions=2)


def test_a_transaction_ends_with_its_size(db: eosdb.Database, run: Run) -> None:
    feed(db, *(b"%d" % i for i in range(10)))
    assert run(upper, transaction_size=4).commits == 3


def test_a_transaction_is_committed_when_no_record_has_come_for_5_ms(
    db: eosdb.Database, clock: ManualClock
) -> None:
    processor = db.processor("in", upper, "out", group_id="g", transactional_id="tx")
    feed(db, b"a")
    before = clock.time_ms()
    processor.run(until_idle_ms=2_000)
    assert prepared_ms(db) - before == 5


def test_a_record_after_a_longer_pause_is_committed_at_once(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Such a sender will pause again."""
    with db.producer() as producer:
        producer.send("in", b"a", deliver_at=clock.time_ms() + 700)
    processor = db.processor("in", upper, "out", group_id="g", transactional_id="tx")
    processor.run(until_idle_ms=2_000)
    (delivered,) = read(db, "in")
    assert values(db) == [b"A"]
    assert prepared_ms(db) == delivered.timestamp


def test_a_transaction_is_held_open_for_more_records_only_so_long(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """While a record comes with each poll."""
    sent = 0

    def handle(record: eosdb.ConsumerRecord) -> bytes:
        nonlocal sent
        clock.advance(20)
        if (sent := sent + 1) < 10:
            feed(db, b"more")
        return record.value or b""

    processor = db.processor(
        "in", handle, "out", group_id="g", transactional_id="tx", transaction_interval_ms=100
    )
    feed(db, b"a")
    before = clock.time_ms()
    assert processor.run(until_idle_ms=2_000).commits == 2
    assert prepared_ms(db) - before == 100


def prepared_ms(db: eosdb.Database) -> int:
    ((first_ms,),) = db.query(
        "SELECT min(timestamp) FROM transaction_history WHERE to_state = 'PrepareCommit'"
    ).rows
    return int(first_ms)
