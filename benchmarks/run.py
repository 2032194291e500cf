"""What exactly-once costs on top of raw SQLite: both measured in the same run, interleaved.

Each case is run once per round beside its raw counterpart, in files of their own, with
`synchronous=FULL`; the median ratio over the rounds is what counts. Writes benchmarks/RESULTS.md.

    python benchmarks/run.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import eosdb

VALUE = os.urandom(100)
RECORDS = 20_000
SINGLES = 500
TABLE = """
CREATE TABLE records (
    partition_id INT, "offset" INT, timestamp INT, timestamp_type INT, key BLOB, value BLOB,
    headers TEXT, producer_id INT, producer_epoch INT, sequence INT, sequence_round INT,
    is_transactional INT, control TEXT, position INT
);
CREATE UNIQUE INDEX a ON records (partition_id, "offset");
CREATE UNIQUE INDEX b ON records
    (partition_id, producer_id, producer_epoch, sequence_round, sequence) WHERE sequence >= 0;
"""


def raw(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(TABLE)
    return connection


def row(i: int) -> tuple[object, ...]:
    return (1, i, 1_700_000_000_000, 0, None, VALUE, None, 1, 0, i, 0, 1, None, 1)


def raw_batches(folder: Path, size: int) -> float:
    """Rows a second by `executemany`, `size` rows in each SQLite transaction."""
    connection = raw(folder)
    start = time.perf_counter()
    for first in range(0, RECORDS, size):
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO records VALUES ({', '.join('?' * 14)})",
            [row(i) for i in range(first, first + size)],
        )
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - start
    connection.close()
    return RECORDS / elapsed


def transactions(folder: Path, size: int) -> float:
    """Records a second by `Producer.send`, `size` records in each transaction."""
    with eosdb.connect(folder / "eos.db") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="bench")
        producer.init_transactions()
        start = time.perf_counter()
        for _ in range(RECORDS // size):
            with producer.transaction():
                for _ in range(size):
                    producer.send("t", VALUE)
        return RECORDS / (time.perf_counter() - start)


def raw_singles(folder: Path) -> float:
    """Durable single-row commits a second."""
    connection = raw(folder)
    start = time.perf_counter()
    for i in range(SINGLES):
        connection.execute(f"INSERT INTO records VALUES ({', '.join('?' * 14)})", row(i))
    elapsed = time.perf_counter() - start
    connection.close()
    return SINGLES / elapsed


def idempotent_singles(folder: Path) -> float:
    """Durable idempotent sends of one record a second."""
    with eosdb.connect(folder / "eos.db") as db:
        db.admin.create_topic("t")
        producer = db.producer()
        producer.send("t", VALUE)
        start = time.perf_counter()
        for _ in range(SINGLES):
            producer.send("t", VALUE)
        return SINGLES / (time.perf_counter() - start)


CASES: list[tuple[str, Callable[[Path], float], Callable[[Path], float]]] = [
    ("transactional send, 1000 a transaction", lambda f: transactions(f, 1000),
     lambda f: raw_batches(f, 1000)),
    ("transactional send, 100 a transaction", lambda f: transactions(f, 100),
     lambda f: raw_batches(f, 100)),
    ("single durable idempotent sends", idempotent_singles, raw_singles),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Exactly-once against raw SQLite.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in CASES}
    for _ in range(rounds):
        for name, ours, theirs in CASES:
            with tempfile.TemporaryDirectory(dir=".") as folder:
                rates[name].append((ours(Path(folder)), theirs(Path(folder))))
    lines = [
        "# Results",
        "",
        f"Made by `make bench`: medians of {rounds} interleaved rounds, 100-byte values, "
        f'`durability="full"`. Python {platform.python_version()}, SQLite '
        f"{sqlite3.sqlite_version}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}. Compare the ratios, not the rates: machines and their disks differ.",
        "",
        "| case | eosdb per second | raw sqlite3 per second | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, measured in rates.items():
        ours_rate, raw_rate = (statistics.median(column) for column in zip(*measured, strict=True))
        ratio = statistics.median(a / b for a, b in measured)
        lines.append(f"| {name} | {ours_rate:,.0f} | {raw_rate:,.0f} | {ratio:.2f} |")
    text = "\n".join(lines) + "\n"
    (Path(__file__).parent / "RESULTS.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
