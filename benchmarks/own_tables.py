"""The loop with tables of one's own: what a commit for each record costs, and what sharing commits saves.

    python -m benchmarks.own_tables

In one run, the best of five of each, under durability "full": a handler of two parameters that writes one
row and returns one result; the same with a commit for each record; a handler of one parameter; and rows
without results, by batches of 500: with `batch=True`, and by hand with a consumer and `db.begin()`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eosdb

RECORDS = 2_000
ROWS = 10_000
"""The records of the ways without results."""
ROUNDS = 5
ROW = "INSERT INTO done (value) VALUES (?)"


def row_and_result(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> Any:
    tx.connection.exec_driver_sql(ROW, (record.value,))
    return record.value


def result(record: eosdb.ConsumerRecord) -> Any:
    return record.value


def row(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> None:
    tx.connection.exec_driver_sql(ROW, (record.value,))


def rows(records: list[eosdb.ConsumerRecord], tx: eosdb.UserTransaction) -> None:
    tx.connection.exec_driver_sql(ROW, [(record.value,) for record in records])


def process(db: eosdb.Database, handler: Callable[..., Any], **settings: Any) -> None:
    processor = db.processor("in", handler, "out", group_id="g", **settings)
    processor.run(until_idle_ms=0)


def by_hand(db: eosdb.Database) -> None:
    with db.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("in")
        while records := consumer.poll(max_records=500):
            with db.begin() as tx:
                rows(records, tx)
                tx.commit_offsets(consumer.position_offsets(), consumer.group_metadata())


def seconds(way: Callable[[eosdb.Database], None], count: int) -> tuple[float, float]:
    """Wall and CPU time for all records."""
    with (
        tempfile.TemporaryDirectory() as folder,
        eosdb.connect(Path(folder) / "own.db") as db,
    ):
        for topic in ("in", "out"):
            db.admin.create_topic(topic)
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE done (id INTEGER PRIMARY KEY, value)")
        db.producer().send_many("in", (b"%d" % i for i in range(count)))
        wall, cpu = time.perf_counter(), time.process_time()
        way(db)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        (done,) = (offset.offset for offset in db.broker.offset_fetch("g").values())
        assert done == count
        return wall / count, cpu / count


def main() -> None:
    ways: dict[str, Callable[[eosdb.Database], None]] = {
        "two parameters, commits shared": lambda db: process(db, row_and_result),
        "two parameters, one commit each": lambda db: process(
            db, row_and_result, transaction_size=1
        ),
        "one parameter, transactions of 500": lambda db: process(db, result),
        "one parameter, transactions of 1": lambda db: process(db, result, transaction_size=1),
        "rows, one by one": lambda db: process(db, row),
        "rows, batch=True": lambda db: process(db, rows, batch=True),
        "rows, batches by hand": by_hand,
    }
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            count = ROWS if name.startswith("rows") else RECORDS
            best[name] = min(best[name], seconds(way, count))
    for name, (wall, cpu) in best.items():
        print(f"{name:<36} {1 / wall:>8,.0f} records/s  {cpu * 1e6:>7.1f} µs CPU")


if __name__ == "__main__":
    main()
