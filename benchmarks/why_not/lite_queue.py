"""litequeue: a queue in one table of a SQLite file. Its acknowledgement is a commit of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.why_not.contract import Driver, Handle, chunks


class LiteQueue(Driver):
    name = "litequeue"
    durable = "fsync before each answer (WAL; its NORMAL raised to `synchronous=FULL`)"
    modules = ("litequeue",)
    in_batches = False

    def connect(self) -> Any:
        queue = import_module("litequeue").LiteQueue(str(Path(self.address, f"{self.run}.db")))
        queue.conn.execute("PRAGMA synchronous=FULL")
        return queue

    def create(self) -> None:
        self.connect().conn.execute("CREATE TABLE results (id INTEGER PRIMARY KEY, value TEXT)")

    def produce(self, values: Iterable[str], size: int) -> None:
        queue = self.connect()
        for some in chunks(values, size):
            if size == 1:
                queue.put(some[0])
            else:
                with queue.transaction():
                    for value in some:
                        queue.put(value)
        queue.close()

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        queue, last, done = self.connect(), time.monotonic(), 0
        while done < limit and time.monotonic() - last <= idle_s:
            for message in list(queue.list_locked(self.lease_s)):
                queue.retry(message.message_id)
            while message := queue.pop():
                queue.conn.execute(
                    "INSERT INTO results (value) VALUES (?)", (handle(message.data),)
                )
                queue.done(message.message_id)
                done, last = done + 1, time.monotonic()
            time.sleep(0.01)

    def results(self) -> list[str]:
        return [value for (value,) in self.connect().conn.execute("SELECT value FROM results")]
