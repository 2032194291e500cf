"""A table with a column `status`, as everybody writes it: what eosdb has to be compared with first."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from benchmarks.why_not.contract import Driver, Handle, chunks

SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE queue (id INTEGER PRIMARY KEY, value TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'ready', claimed REAL);
CREATE INDEX ready ON queue (status, id) WHERE status = 'ready';
CREATE INDEX claimed ON queue (status, id) WHERE status = 'claimed';
CREATE TABLE results (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
"""
"""SQLite uses a partial index only if the query repeats its condition: it scans for `status <> 'done'`."""
NEXT = "SELECT id, value FROM queue WHERE status = 'ready' ORDER BY id LIMIT ?"
CLAIM = (
    "UPDATE queue SET status = 'claimed', claimed = ? WHERE id = coalesce("
    "(SELECT id FROM queue WHERE status = 'claimed' AND claimed < ? ORDER BY id LIMIT 1), "
    "(SELECT id FROM queue WHERE status = 'ready' ORDER BY id LIMIT 1)) RETURNING id, value"
)


class Table(Driver):
    """Read, work and acknowledge in one write transaction: nobody else writes while it works."""

    name = "table"
    durable = "fsync before each answer (WAL, `synchronous=FULL`)"
    synchronous: ClassVar[str] = "FULL"

    def connect(self) -> sqlite3.Connection:
        path = Path(self.address, f"{self.run}.db")
        file = sqlite3.connect(path, isolation_level=None, timeout=60)
        file.execute(f"PRAGMA synchronous={self.synchronous}")
        return file

    def create(self) -> None:
        self.connect().executescript(SCHEMA)

    def produce(self, values: Iterable[str], size: int) -> None:
        file = self.connect()
        for some in chunks(values, size):
            file.execute("BEGIN IMMEDIATE")
            file.executemany("INSERT INTO queue (value) VALUES (?)", [(value,) for value in some])
            file.execute("COMMIT")
        file.close()

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        file, last, done = self.connect(), time.monotonic(), 0
        while done < limit:
            file.execute("BEGIN IMMEDIATE")
            found = file.execute(NEXT, (size,)).fetchall()
            for number, value in found:
                file.execute("INSERT INTO results (value) VALUES (?)", (handle(value),))
                file.execute("UPDATE queue SET status = 'done' WHERE id = ?", (number,))
            file.execute("COMMIT")
            done += len(found)
            if found:
                last = time.monotonic()
            elif time.monotonic() - last >= idle_s:
                return
            else:
                time.sleep(0.01)

    def results(self) -> list[str]:
        return [value for (value,) in self.connect().execute("SELECT value FROM results")]


class Normal(Table):
    name = "table-normal"
    durable = "a kill, not a power cut (WAL, `synchronous=NORMAL`)"
    synchronous = "NORMAL"


class Claims(Table):
    """Claim, commit, work, finish: others write while it works; a lease says whose claim is forfeit."""

    name = "table-claims"
    in_batches = False

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        file, last, done = self.connect(), time.monotonic(), 0
        while done < limit:
            now = time.time()
            claimed = file.execute(CLAIM, (now, now - self.lease_s)).fetchall()
            for number, value in claimed:
                result = handle(value)
                file.execute("BEGIN IMMEDIATE")
                file.execute("INSERT INTO results (value) VALUES (?)", (result,))
                file.execute("UPDATE queue SET status = 'done' WHERE id = ?", (number,))
                file.execute("COMMIT")
                done += 1
            if claimed:
                last = time.monotonic()
            elif time.monotonic() - last >= idle_s:
                return
            else:
                time.sleep(0.01)
