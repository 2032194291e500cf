"""A shop: orders come in, workers bill them, and every order is billed once, whoever is killed meanwhile.

    python examples/shop.py shop.db --orders 300 --workers 3 --kill

Orders and invoices are rows of the shop's own tables, in the same file as the messages about them, and
each row is stored together with its message or not at all. A worker is a process that runs one function for
each order; the workers share the topic's partitions as a consumer group. When a card is refused the order
is tried again later, and in the end it is a dead letter. With `--kill` one worker is killed at its work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from sqlalchemy import Column, Integer, MetaData, String, Table

import eosdb

metadata = MetaData()
orders = Table(
    "shop_orders",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("customer", String, nullable=False),
    Column("quantity", Integer, nullable=False),
)
invoices = Table(
    "shop_invoices",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("amount", Integer, nullable=False),
)


class CardRefusedError(Exception):
    """What the bank says of some customers, always."""


def prepare(db: eosdb.Database) -> None:
    """Make the topics and the tables that are not there yet; several processes may do so at once."""
    for topic in ("orders", "invoices"):
        db.admin.create_topic(topic, partitions=6, exist_ok=True)
    with db.begin() as tx:  # It looks for the tables and makes them in one transaction.
        metadata.create_all(tx.connection)


def place(db: eosdb.Database, request_id: str, customer: str, quantity: int) -> bool:
    """Store an order and tell of it, in one commit. False when the request had been placed before."""
    with db.begin() as tx:
        order = {"request_id": request_id, "customer": customer, "quantity": quantity}
        message = json.dumps(order)
        sent = tx.publish("orders", key=customer, value=message, idempotency_key=request_id)
        if not sent.duplicate:
            tx.connection.execute(orders.insert().values(order))
    return not sent.duplicate


def bill(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> str:
    """Write the invoice. What is returned goes to the topic `invoices`, in the same commit as the row."""
    order = json.loads(record.value)
    invoice = {"request_id": order["request_id"], "amount": 5 * order["quantity"]}
    tx.connection.execute(invoices.insert().values(invoice))
    if order["customer"] == "customer-13":
        raise CardRefusedError(order["customer"])  # The row above is gone with it.
    return json.dumps(invoice)


def work(path: str) -> None:
    """Bill until every order has been billed, also those of workers that have died."""
    with eosdb.connect(path) as db:
        prepare(db)  # The shop may have died before it was ready.
        eosdb.process(
            db, "orders", bill, "invoices",
            group_id="billing", max_attempts=2, retry_backoff_ms=10, retry_delays_ms=[200],
            dead_letter_topic="orders.refused", transaction_size=10, until_idle_ms=1_000,
        )  # fmt: skip


def books(db: eosdb.Database) -> str:
    """What there is of each kind, and whether rows and messages tell the same."""
    count = "SELECT count(*), count(DISTINCT {}) FROM {}"
    of_message = "json_extract(CAST(value AS TEXT), '$.request_id')"
    in_topic = "committed_records WHERE topic = '{}'"
    found = {
        "orders": count.format("request_id", "shop_orders"),
        "order messages": count.format(of_message, in_topic.format("orders")),
        "invoices": count.format("request_id", "shop_invoices"),
        "invoice messages": count.format(of_message, in_topic.format("invoices")),
        "refused": count.format(of_message, in_topic.format("orders.refused")),
    }
    lines = []
    for name, sql in found.items():
        ((rows, distinct),) = db.query(sql).rows
        lines.append(f"{name}: {rows}" + (f" ({rows - distinct} twice)" if rows > distinct else ""))
    return ", ".join(lines)


def main(path: str, count: int, workers: int, kill: bool) -> None:
    """Take orders while workers bill them, and look at the books when both are done."""
    command = [sys.executable, __file__, path, "--work"]
    with eosdb.connect(path) as db:
        prepare(db)
        running = [subprocess.Popen(command) for _ in range(workers)]
        placed = 0
        for i in range(count):
            placed += place(db, f"request-{i}", f"customer-{i % 20}", 1 + i % 3)
            if kill and i == count // 2:
                while not all_at_work(db, workers):
                    time.sleep(0.01)
                running[0].kill()
        for worker in running:
            worker.wait()
        print(f"placed {placed} orders; {books(db)}")


def all_at_work(db: eosdb.Database, workers: int) -> bool:
    """Whether each worker has partitions of its own."""
    if "billing" not in db.broker.list_groups():
        return False
    group = db.broker.describe_group("billing")
    return group.state == "Stable" and len(group.members) == workers


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A shop with workers that may be killed.")
    parser.add_argument("path")
    parser.add_argument("--orders", type=int, default=300)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--work", action="store_true", help="Be a worker.")
    given = parser.parse_args()
    if given.work:
        work(given.path)
    else:
        main(given.path, given.orders, given.workers, given.kill)
