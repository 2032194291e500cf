"""eosdb, by its public API: `send`, `send_many`, and `processor` with a handler of one parameter."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Literal

import eosdb
from benchmarks.why_not.contract import Driver, Handle, chunks


class Full(Driver):
    name = "eosdb"
    durable = 'fsync before each answer (`durability="full"`, the default)'
    lease_min_s = 6.0
    durability: ClassVar[Literal["full", "normal"]] = "full"

    @property
    def path(self) -> Path:
        return Path(self.address, f"{self.run}.db")

    def connect(self) -> eosdb.Database:
        return eosdb.connect(self.path, durability=self.durability)

    def create(self) -> None:
        with self.connect() as db:
            for topic in ("in", "out"):
                db.admin.create_topic(topic)

    def produce(self, values: Iterable[str], size: int) -> None:
        with self.connect() as db, db.producer() as producer:
            for some in chunks(values, size):
                if size == 1:
                    producer.send("in", some[0])
                    producer.flush()
                else:
                    producer.send_many("in", some)

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        done = 0

        def handler(record: eosdb.ConsumerRecord) -> str:
            nonlocal done
            done += 1
            if done == limit:
                processor.stop()
            return handle(record.value.decode())

        with self.connect() as db:
            processor = db.processor(
                "in", handler, "out", group_id="workers", transaction_size=size,
                consumer={"session_timeout_ms": int(self.lease_s * 1000)},
            )  # fmt: skip
            processor.run(until_idle_ms=int(idle_s * 1000))

    def results(self) -> list[str]:
        sql = (
            "SELECT CAST(value AS TEXT) FROM committed_records WHERE topic = 'out' ORDER BY offset"
        )
        with closing(sqlite3.connect(self.path)) as file:
            return [value for (value,) in file.execute(sql)]


class Normal(Full):
    name = "eosdb-normal"
    durable = 'a kill, not a power cut (`durability="normal"`)'
    durability = "normal"
