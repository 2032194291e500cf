"""What the tests of the page look at: a file with every fate, dead letters and names that mean harm."""

from __future__ import annotations

from pathlib import Path

import eosdb

HARM = "<script>window.hacked = 1</script>\"'&\u202e\x00 <img src=x onerror='window.hacked=1'>"


def _refuse(record: eosdb.ConsumerRecord) -> None:
    raise ValueError(f"no such customer {HARM}")


def make_file(path: Path) -> None:
    """Topics `orders` (two partitions), `orders.dlq` with three dead letters; an aborted transaction, a
    committed one, and one that is open: it begins at offset 5 of orders-0."""
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_topic("orders.dlq")
        with db.producer() as producer:
            producer.send("orders", b"first", key=b"a", partition=0)
            for value in (HARM.encode(), b"\xff\xfe"):
                headers = [(HARM, HARM.encode())]
                producer.send("orders", value, key=value, headers=headers, partition=1)
        db.processor(
            "orders", _refuse, group_id=f"billing {HARM}", dead_letter_topic="orders.dlq",
            max_attempts=1,
        ).run(until_idle_ms=0)  # fmt: skip
        with db.producer(transactional_id="settled") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"taken back", partition=0)
            producer.flush()
            producer.abort_transaction()
            with producer.transaction():
                producer.send("orders", b"paid", partition=0)
        hanging = db.producer(transactional_id=f"refund {HARM}", transaction_timeout_ms=600_000)
        hanging.init_transactions()
        hanging.begin_transaction()
        hanging.send("orders", b"undecided", partition=0)
        hanging.flush()
        db.abandon()
