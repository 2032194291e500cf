"""A small order service: its own tables and its messages in one file and in one commit.

    python demo/order_service.py shop.db 100

places so many orders and bills them; started again, it places only those that are missing. There is no
outbox table and no relay: an order's row and its message are stored together or not at all, and the same
request placed twice is one order.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from sqlalchemy import Column, Integer, MetaData, String, Table, func, select

import eosdb

TOPIC = "orders"
GROUP = "billing"

metadata = MetaData()
orders = Table(
    "shop_orders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("request_id", String, nullable=False, unique=True),
    Column("item", String, nullable=False),
    Column("quantity", Integer, nullable=False),
)
invoices = Table(
    "shop_invoices",
    metadata,
    Column("order_id", Integer, primary_key=True),
    Column("amount", Integer, nullable=False),
)


@dataclass(frozen=True)
class Order:
    """What a customer asks for; `request_id` is the customer's own number for it."""

    request_id: str
    item: str
    quantity: int


def prepare(db: eosdb.Database) -> None:
    """Make the topic and the tables that are not there yet."""
    if TOPIC not in db.admin.list_topics():
        db.admin.create_topic(TOPIC)
    metadata.create_all(db.engine)


def place(db: eosdb.Database, order: Order) -> bool:
    """Store the order and tell of it. False when the request had been placed before."""
    with db.begin() as tx:
        message = {"item": order.item, "quantity": order.quantity, "request": order.request_id}
        sent = tx.publish(
            TOPIC, key=order.item, value=json.dumps(message), idempotency_key=order.request_id
        )
        if not sent.duplicate:
            row = orders.insert().values(
                id=sent.offset,
                request_id=order.request_id,
                item=order.item,
                quantity=order.quantity,
            )
            tx.connection.execute(row)
    return not sent.duplicate


def bill(db: eosdb.Database, max_records: int = 10) -> int:
    """Write an invoice for each new order, once. Returns how many.

    A static member: started again after a crash, it takes its own place at once.
    """
    count = 0
    with db.consumer(GROUP, group_instance_id="1", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        while batch := consumer.poll(max_records=max_records):
            with db.begin() as tx:
                for record in batch:
                    amount = 5 * json.loads(record.value)["quantity"]
                    row = invoices.insert().values(order_id=record.offset, amount=amount)
                    tx.connection.execute(row)
                tx.commit_offsets(consumer.group_metadata(), consumer.position_offsets())
            count += len(batch)
    return count


def main(path: str, count: int) -> None:
    with eosdb.connect(path) as db:
        prepare(db)
        placed = billed = 0
        for number in range(count):
            placed += place(
                db, Order(f"request-{number}", "tea" if number % 2 else "cups", 1 + number % 3)
            )
            if number % 10 == 9:
                billed += bill(db)
        billed += bill(db)
        with db.engine.connect() as connection:
            total = connection.execute(select(func.sum(invoices.c.amount))).scalar_one()
        print(f"placed {placed} orders, billed {billed}; invoices over {total} in all")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
