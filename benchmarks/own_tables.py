"""The loop with tables of one's own: what a commit for each record costs, and what sharing commits saves.

    python -m benchmarks.own_tables

In one run, the best of five of each, under durability "full": a handler of two parameters that writes one
row and returns one result; the same with a commit for each record; and a handler of one parameter.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eosdb

RECORDS = 2_000
ROUNDS = 5
ROW = "INSERT INTO done (value) VALUES (?)"


def row_and_result(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> Any:
    tx.connection.exec_driver_sql(ROW, (record.value,))
    return record.value


def result(record: eosdb.ConsumerRecord) -> Any:
    return record.value


def seconds(handler: Callable[..., Any], transaction_size: int) -> tuple[float, float]:
    """Wall and CPU time for all records."""
    with (
        tempfile.TemporaryDirectory() as folder,
        eosdb.connect(Path(folder) / "own.db") as db,
    ):
        for topic in ("in", "out"):
            db.admin.create_topic(topic)
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE done (id INTEGER PRIMARY KEY, value)")
        db.producer().send_many("in", (b"%d" % i for i in range(RECORDS)))
        wall, cpu = time.perf_counter(), time.process_time()
        processor = db.processor(
            "in", handler, "out", group_id="g", transaction_size=transaction_size
        )
        report = processor.run(until_idle_ms=0)
        assert report.processed == RECORDS, report
        return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    ways: dict[str, tuple[Callable[..., Any], int]] = {
        "two parameters, commits shared": (row_and_result, 500),
        "two parameters, one commit each": (row_and_result, 1),
        "one parameter, transactions of 500": (result, 500),
        "one parameter, transactions of 1": (result, 1),
    }
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(ROUNDS):
        for name, (handler, size) in ways.items():
            best[name] = min(best[name], seconds(handler, size))
    for name, (wall, cpu) in best.items():
        print(f"{name:<36} {RECORDS / wall:>8,.0f} records/s  {cpu / RECORDS * 1e6:>6.0f} µs CPU")


if __name__ == "__main__":
    main()
