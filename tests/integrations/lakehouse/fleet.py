"""python -m tests.integrations.lakehouse.fleet FORMAT [FILES [KILLS [SEED]]]: part of `make lakehouse`.

Many files are exported into one table while they are written to, by one process or by two, which are killed
at any instant: in the middle of a pass, and around its commit. In the end every record is one row.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.crash.children import environment
from tests.integrations.lakehouse.tables import Table
from tests.tidy.tree import ROOT

Row = tuple[str, str, int, int, bytes | None]
_AROUND_A_COMMIT_S: Final = 0.2


class Fleet:
    """The files, in the folder `fleet` beside the table, and what kills the exports of them."""

    def __init__(self, table: Table, files: int, rng: random.Random) -> None:
        self.table, self._rng = table, rng
        self._folder = table.folder / "fleet"
        self._folder.mkdir()
        self.paths = [self._folder / f"{number:05}.db" for number in range(files)]
        for path in self.paths:
            with eosdb.connect(path, durability="off") as db:
                db.admin.create_topic("orders", partitions=2)
        self.write(self.paths)

    def write(self, paths: Sequence[Path]) -> None:
        """Append to each of the files, here and there in a transaction, of which some are aborted."""
        for path in paths:
            with eosdb.connect(path, durability="off") as db:
                batch = RecordBatch([Record(b"k", b"%d" % self._rng.randrange(10**9))] * 3)
                db.broker.append(TopicPartition("orders", self._rng.randrange(2)), batch)
                if self._rng.random() < 0.1:
                    with db.producer(transactional_id="t") as producer:
                        producer.init_transactions()
                        producer.begin_transaction()
                        for partition in range(2):
                            producer.send("orders", b"of a transaction", partition=partition)
                        if self._rng.random() < 0.5:
                            producer.commit_transaction()
                        else:
                            producer.abort_transaction()

    def start(self) -> subprocess.Popen[bytes]:
        options = [f"--option={name}={value}" for name, value in self.table.options.items()]
        words = [
            self.table.target,
            "--table-format",
            self.table.format,
            "--files",
            self._folder,
            *options,
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "eosdb", "export", *map(str, words)],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )

    def run(self, patience_s: float | None = None) -> bool:
        """Export, with another export at the same time now and then; kill them after a time, or around a
        commit. Returns whether one was killed."""
        both = self._rng.random() < 0.3 and self.table.format != "parquet"
        before = self.table.data_files()
        exports = [self.start() for _ in range(1 + both)]
        if patience_s is None:
            while self.table.data_files() == before and exports[0].poll() is None:
                time.sleep(0.001)
            patience_s = self._rng.random() * _AROUND_A_COMMIT_S
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and exports[0].poll() is None:
            self.write(self._rng.sample(self.paths, 1))
        for export in exports:
            export.kill()
        return min([export.wait() for export in exports]) < 0

    def finish(self) -> float:
        """Export to the end. Returns how long it took."""
        began = time.monotonic()
        assert self.start().wait() == 0
        return time.monotonic() - began

    def records(self) -> list[Row]:
        found: list[Row] = []
        columns = ("offset", "value")
        for path in self.paths:
            with eosdb.connect(path, read_only=True) as db:
                for tp, (offsets, end) in db.admin.consistent_cut().items():
                    for rows in db.admin.scan(tp, offsets.log_start_offset, end, columns=columns):
                        found += [(str(path), *tp, offset, value) for offset, value in rows]
        return sorted(found)

    def rows(self) -> list[Row]:
        names = ("source_file", "topic", "partition", "offset", "value")
        return sorted(tuple(row[name] for name in names) for row in self.table.rows())


def attack(table: Table, files: int, kills: int, rng: random.Random) -> str:
    """Raises AssertionError if a record is not exactly one row."""
    fleet = Fleet(table, files, rng)
    took_s = fleet.finish()
    died, ended, sizes = 0, 0, Counter[int]()
    while died < kills:
        fleet.write(rng.sample(fleet.paths, rng.randrange(1, max(files // 10, 2))))
        if fleet.run(rng.random() * took_s if rng.random() < 0.5 else None):
            died += 1
            rows = fleet.rows()
            assert len({row[:4] for row in rows}) == len(rows), "a record is two rows"
            sizes[len(rows)] += 1
        else:
            ended += 1
    fleet.finish()
    rows, records = fleet.rows(), fleet.records()
    assert rows == records, f"{len(rows)} rows, {len(records)} records"
    return (
        f"{table.format}: {files} files, {died} kills, {ended} exports that ended before; the table had "
        f"{len(sizes)} different sizes meanwhile; {len(rows)} rows, each record once"
    )


def main(format: str, files: str = "2000", kills: str = "30", seed: str = "0") -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(
            attack(Table(format, Path(folder)), int(files), int(kills), random.Random(seed)),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
