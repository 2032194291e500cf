"""Two days of a shop in one file: the history that the queries of docs/sql.md are checked against.

Everything the page asks about happens once or twice here, at times one can read: transactions that
commit, abort, are fenced, time out or stay open; groups inside and outside transactions; producers
with and without idempotence; headers, a tombstone, a new epoch, a gap, deleted records. `NOW` is when the
analyst asks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.model.failpoints import Failpoint, watched

NOW = "2023-11-15 13:00:00"
DAY_ONE_MS = 1_699_920_000_000
"""2023-11-14 00:00:00 UTC."""
MARKERS_TAKE_MS = 5
ORDERS = [TopicPartition("orders", i) for i in range(2)]
INVOICES = TopicPartition("invoices", 0)


def make(path: Path) -> None:
    """Write the history, and close the file."""
    clock = ManualClock(start_ms=at(1, "10:00"))
    with eosdb.connect(path, clock=clock, durability="off") as db, watched(markers_take(clock)):
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("invoices")
        db.admin.create_topic("prices", config={"cleanup.policy": "compact"})
        day_one(db, clock)
        day_two(db, clock)


def at(day: int, time: str) -> int:
    """Milliseconds since the epoch of a time such as 10:00 or 10:00:30 on day 1 or 2."""
    hours, minutes, seconds = (int(part) for part in (time + ":0").split(":")[:3])
    return DAY_ONE_MS + (((day - 1) * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000


def go_to(clock: ManualClock, day: int, time: str) -> None:
    clock.advance(at(day, time) - clock.time_ms())


def markers_take(clock: ManualClock) -> Callable[[Failpoint], None]:
    """Between the decision and the completion of a transaction some time passes."""

    def watcher(point: Failpoint) -> None:
        if point is Failpoint.END_TXN_DECIDED:
            clock.advance(MARKERS_TAKE_MS)

    return watcher


def day_one(db: eosdb.Database, clock: ManualClock) -> None:
    plain = db.producer()
    plain.send("orders", '{"total":99}', key="42", partition=0,
               headers=[("source", b"web"), ("trace", b"t-1"), ("empty", None)])  # fmt: skip
    plain.send("orders", '{"total":10}', key="43", partition=0)

    shop = db.producer(transactional_id="shop-1", transaction_timeout_ms=600_000)
    shop.init_transactions()
    go_to(clock, 1, "10:01")
    with shop.transaction():
        shop.send("orders", '{"total":100}', key="42", partition=0)
        shop.flush()
        clock.advance(1_000)
        shop.send("orders", '{"total":20}', key="44", partition=1)
        shop.flush()
        clock.advance(1_000)

    go_to(clock, 1, "10:30")
    shop.begin_transaction()
    shop.send("orders", '{"total":-1}', key="45", partition=0)
    shop.flush()
    clock.advance(500)
    shop.abort_transaction()

    go_to(clock, 1, "11:00")
    billing = db.producer(transactional_id="billing-1")
    billing.init_transactions()
    with billing.transaction():
        billing.send("invoices", "99 for 42", key="42")
        billing.send_offsets_to_transaction({ORDERS[0]: OffsetAndMetadata(1)}, "billing")
    db.broker.offset_commit("audit", {INVOICES: OffsetAndMetadata(0)})
    db.broker.offset_commit(
        "report", {ORDERS[0]: OffsetAndMetadata(2), ORDERS[1]: OffsetAndMetadata(0)}
    )

    go_to(clock, 1, "11:59:50")  # Open at noon, committed a little later.
    shop.begin_transaction()
    shop.send("orders", '{"total":30}', key="46", partition=1)
    shop.flush()
    plain.send("orders", '{"total":40}', key="47", partition=1)
    plain.send("orders", None, key="43", partition=0)
    go_to(clock, 1, "12:00:10")
    shop.commit_transaction()

    for price in ("1.00", "1.10", "1.20"):
        plain.send("prices", price, key="pear")

    go_to(clock, 1, "13:00")
    slow = db.producer(transactional_id="slow-1", transaction_timeout_ms=60_000)
    slow.init_transactions()
    slow.begin_transaction()
    slow.send("orders", '{"total":5}', key="48", partition=0)
    slow.flush()
    clock.advance(61_000)
    db.housekeeping()

    go_to(clock, 1, "14:00")
    old = db.producer(transactional_id="shop-2")
    old.init_transactions()
    old.begin_transaction()
    old.send("orders", '{"total":6}', key="49", partition=1)
    old.flush()
    db.producer(transactional_id="shop-2").init_transactions()


def day_two(db: eosdb.Database, clock: ManualClock) -> None:
    go_to(clock, 2, "12:30")
    for _ in range(2):  # Sent again by a program that had forgotten it: eosdb takes both.
        db.producer(enable_idempotence=False).send("orders", '{"total":7}', key="50", partition=0)

    me = db.broker.init_producer_id()
    for epoch in (0, 1):
        batch = RecordBatch([Record(b"r", b"x" * 100)], me.producer_id, epoch, 0)
        for _ in range(2):  # The repeat of a batch is answered, and leaves nothing behind.
            db.broker.append(INVOICES, batch)
    stranger = db.broker.init_producer_id()
    db.broker.append(INVOICES, RecordBatch([Record(b"s", b"y")], *stranger, 7))
    db.broker.delete_records(INVOICES, 1)

    go_to(clock, 2, "12:55")
    late = db.producer(transactional_id="late-1", transaction_timeout_ms=600_000)
    late.init_transactions()
    late.begin_transaction()
    late.send("orders", '{"total":8}', key="51", partition=1)
    late.send_offsets_to_transaction({ORDERS[1]: OffsetAndMetadata(4)}, "billing")
    late.flush()
    db.producer().send("orders", '{"total":9}', key="52", partition=1)
    tomorrow = clock.time_ms() + 86_400_000
    db.producer().send("orders", "a reminder", key="52", headers={"n": "1"}, deliver_at=tomorrow)
