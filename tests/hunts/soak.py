"""A soak: small transactions and a consumer group for a while, to see what grows.

    python -m tests.hunts.soak [--minutes 30] [--rate 200] [--keep-s 60] [--folder PATH]

One process sends small durable transactions, so many a second, another reads them as a member of a group;
records and history are kept for a minute, and housekeeping happens by itself. Each line is the highest of a
thirtieth of the time, so in 30 minutes of a minute. At the end: did the last third stay within 1.1 times
the middle third, and does the file verify? The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import statistics
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Final

import eosdb
from benchmarks.raw import VALUE
from benchmarks.years import keeping

LINES: Final = 30
_FLAT: Final = 1.1
_SLACK_MB: Final = 1.0
"""More than the middle third by less than this is not growth: a few pages more or less."""
_PARTITIONS: Final = 4
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """What there is at some moment, and the highest of several."""

    file_mb: float
    wal_mb: float
    free_mb: float
    producer_rss_mb: float
    consumer_rss_mb: float

    @classmethod
    def at(cls, path: Path, consumer: int) -> Look:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            ((free,),) = file.execute(
                "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
            ).fetchall()
        wal = path.with_name(path.name + "-wal")
        sizes = (path.stat().st_size, wal.stat().st_size, free, _rss(os.getpid()), _rss(consumer))
        return cls(*(size / 1e6 for size in sizes))

    @classmethod
    def highest(cls, looks: Sequence[Look]) -> Look:
        return cls(*map(max, zip(*map(astuple, looks), strict=True)))


@dataclass(frozen=True, slots=True)
class Line:
    """A thirtieth of the time."""

    transactions: int
    p99_ms: float
    look: Look


def _rss(pid: int) -> int:
    pages = Path("/proc", str(pid), "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def consume(path: str, config: eosdb.BrokerConfig, ended: Event) -> None:
    """In a process of its own: read and commit until told to stop."""
    with (
        eosdb.connect(path, config=config) as db,
        db.consumer("soak", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe(["t"])
        while not ended.is_set():
            if consumer.poll(200):
                consumer.commit()


@contextmanager
def consuming(path: Path, config: eosdb.BrokerConfig) -> Iterator[int]:
    """The pid of the process that consumes."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    process = context.Process(target=consume, args=(str(path), config, ended))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        ended.set()
        process.join(60)
    assert process.exitcode == 0, f"the consumer ended with {process.exitcode}"


def lines(path: Path, seconds: float, rate: float, keep_ms: int) -> Iterator[Line]:
    """Send until the time is over, and no faster than that: what is kept would wander with the machine."""
    config = keeping(keep_ms, max(keep_ms // 10, 100))
    with eosdb.connect(path, config=config) as db:
        db.admin.create_topic("t", _PARTITIONS)
        with consuming(path, config) as consumer, db.producer(transactional_id="soak") as producer:
            producer.init_transactions()
            began, done, next_look = monotonic(), 0, 0.0
            for number in range(1, LINES + 1):
                took, looks = array("d"), [Look.at(path, consumer)]
                while not took or monotonic() < began + seconds * number / LINES:
                    sleep(max(0.0, began + done / rate - monotonic()))
                    start = perf_counter()
                    with producer.transaction():
                        producer.send("t", VALUE, partition=done % _PARTITIONS)
                    took.append((perf_counter() - start) * 1000)
                    done += 1
                    if monotonic() >= next_look:
                        looks.append(Look.at(path, consumer))
                        next_look = monotonic() + _LOOK_S
                yield Line(done, sorted(took)[len(took) * 99 // 100], Look.highest(looks))


def verdicts(found: Sequence[Line]) -> list[tuple[str, float, float, bool]]:
    """What was looked at; the middle third and the last: the highest, of p99 the median; whether it is
    flat."""
    third = len(found) // 3
    middle, last = found[third : 2 * third], found[2 * third :]
    made = []
    for field in fields(Look):
        before, now = (
            max(getattr(line.look, field.name) for line in part) for part in (middle, last)
        )
        is_flat = now <= before * _FLAT or now - before < _SLACK_MB
        made.append((field.name, before, now, is_flat))
    before, now = (statistics.median(line.p99_ms for line in part) for part in (middle, last))
    return [*made, ("p99_ms", before, now, now <= before * _FLAT)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunts.soak")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=200, help="transactions a second")
    parser.add_argument(
        "--keep-s", type=float, default=60, help="how long records and history are kept"
    )
    parser.add_argument("--folder", type=Path, default=Path(), help="the disk to be used")
    asked = parser.parse_args(arguments)
    names = [field.name for field in fields(Look)]
    print("  ".join(f"{name:>15}" for name in ("transactions", *names, "p99_ms")))
    found = []
    with TemporaryDirectory(dir=asked.folder, prefix="bench-") as folder:
        path = Path(folder, "soak.db")
        for line in lines(path, asked.minutes * 60, asked.rate, int(asked.keep_s * 1000)):
            found.append(line)
            shown = [f"{line.transactions:>15,}"]
            shown += [f"{value:>15.2f}" for value in (*astuple(line.look), line.p99_ms)]
            print("  ".join(shown), flush=True)
        with eosdb.connect(path) as db:
            report = db.verify()
    made = verdicts(found)
    for name, before, now, is_flat in made:
        word = "flat" if is_flat else "GREW"
        print(f"{name:>15}: middle third {before:.2f}, last third {now:.2f}: {word}")
    print(f"verify: {report}")
    return 0 if report.ok and all(is_flat for *_, is_flat in made) else 1


if __name__ == "__main__":
    sys.exit(main())
