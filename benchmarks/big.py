"""What one does with a file of many millions of records: time, CPU, memory, and what waits meanwhile.

    python -m benchmarks.big FILE --make 50000000        # 10 GB, in five minutes
    python -m benchmarks.big FILE [--only WORK]…         # a table; what deletes comes last

Each work is a process of its own. Beside some of them another process commits transactions of ten records,
and the table says how long these took. By hand: it takes minutes, and room for three more such files. FILE
is changed: after `retention` half of it is gone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from time import perf_counter, process_time, sleep

import eosdb
from benchmarks import large
from benchmarks.child import ROOT, peak_mb
from benchmarks.raw import VALUE
from eosdb import TopicPartition
from eosdb.admin.tools import Tools

SHAPE = large.Shape((1_000, 10), 4, ("t", "u"), ("readers", "others"))
"""Large and small transactions in two topics, with the offsets of two groups in each of them."""
TP = TopicPartition("t", 0)


def first_send(db: eosdb.Database) -> str:
    with db.producer(transactional_id="first") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", VALUE)
    return ""


def read_from_the_middle(db: eosdb.Database) -> str:
    with db.consumer() as consumer:
        consumer.assign([TP])
        consumer.seek(TP, db.broker.offsets(TP).log_end_offset // 2)
        count = 0
        while count < 1_000_000 and (records := len(consumer.poll_columns())):
            count += records
    return f"{count:,} records"


def lag(db: eosdb.Database) -> str:
    return f"{len(db.admin.describe_group_offsets('readers').partitions)} partitions"


def verify(db: eosdb.Database) -> str:
    report = db.verify()
    assert report.ok, report.problems
    return f"{report.events:,} events"


def backup(db: eosdb.Database) -> str:
    target = Path(f"{db.path}.backup")
    target.unlink(missing_ok=True)
    db.backup(target)
    size = target.stat().st_size
    target.unlink()
    return f"{size / 1e9:.2f} GB"


def publish(db: eosdb.Database) -> str:
    report = db.publish_copy(f"file://{db.path}.published")
    assert report is not None
    return f"{report.sent_bytes / 1e6:,.0f} MB of {report.size / 1e6:,.0f}"


def one_percent(db: eosdb.Database) -> str:
    """Another hundredth of the records."""
    end = sum(offsets.log_end_offset for offsets in db.admin.partition_offsets().values())
    with db.producer(transactional_id="more") as producer:
        producer.init_transactions()
        for _ in range(end // 1_000_000):
            with producer.transaction():
                producer.send_many("t", [VALUE] * 10_000)
    return f"{end // 1_000_000 * 10_000:,} records"


def retention(db: eosdb.Database) -> str:
    """Records and history: half of the bytes of each partition, and the events that described them."""
    sizes = Tools(db.admin).log_directory().sizes
    for topic in SHAPE.topics:
        largest = max(size for tp, size in sizes.items() if tp.topic == topic)
        db.admin.alter_topic_config(topic, {"retention.bytes": largest // 2})
    report = db.housekeeping()
    freed = f"{report.freed_bytes / 1e9:.2f} GB freed"
    return f"{report.deleted_records:,} records, {report.trimmed_events:,} events, {freed}"


def nothing(db: eosdb.Database) -> str:
    sleep(20)
    return "what the sender takes alone"


def compact(db: eosdb.Database) -> str:
    report = db.compact()
    return f"{report.bytes_before / 1e9:.2f} to {report.bytes_after / 1e9:.2f} GB"


Work = Callable[[eosdb.Database], str]
WORKS: dict[str, Work] = {
    "nothing": nothing,
    "open": lambda db: f"schema {db.info()['schema_version']}",  # An older file is upgraded.
    "first-send": first_send,
    "read-middle": read_from_the_middle,
    "lag": lag,
    "info": lambda db: f"{len(db.info())} lines",
    "topics": lambda db: f"{len(db.admin.list_topics())} topics",
    "overview": lambda db: str(type(db.admin.overview()).__name__),
    "stats": lambda db: f"{sum(topic.records for topic in db.admin.stats().topics):,} records",
    "verify": verify,
    "backup": backup,
    "publish-all": publish,
    "one-percent": one_percent,
    "publish-1%": publish,
    "retention": retention,
    "compact": compact,
    "verify-half": verify,
}
READING = {
    "nothing",
    "read-middle",
    "lag",
    "info",
    "topics",
    "overview",
    "stats",
    "verify",
    "verify-half",
}
BESIDE = {
    "nothing",
    "verify",
    "backup",
    "publish-all",
    "publish-1%",
    "retention",
    "compact",
    "verify-half",
}
"""Works with a sender beside them."""
HISTORY = {"retention": eosdb.BrokerConfig(history_retention_ms=0)}


def do(path: Path, name: str) -> Mapping[str, object]:
    start, cpu = perf_counter(), process_time()
    with eosdb.connect(path, read_only=name in READING, config=HISTORY.get(name)) as db:
        note = WORKS[name](db)
    return {
        "wall": perf_counter() - start, "cpu": process_time() - cpu, "peak": peak_mb(), "note": note,
    }  # fmt: skip


def send(path: Path) -> Mapping[str, object]:
    """Commit until standard input ends."""
    import threading

    ended, waits = threading.Event(), list[float]()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with eosdb.connect(path) as db, db.producer(transactional_id="beside") as producer:
        producer.init_transactions()
        print("ready", flush=True)
        while not ended.wait(0.002):
            start = perf_counter()
            try:
                with producer.transaction():
                    producer.send_many("t", [VALUE] * 10)
            except eosdb.DatabaseLockedError:
                pass  # It waited for `lock_timeout_ms`.
            waits.append((perf_counter() - start) * 1_000)
    waits.sort()
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: waits[min(int(len(waits) * share), len(waits) - 1)] for name, share in at.items()}


def child(path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.big", str(path), *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def sending(path: Path, found: dict[str, object]) -> Iterator[None]:
    process = child(path, "--send")
    assert process.stdout is not None
    process.stdout.readline()
    yield
    out, _ = process.communicate()
    found |= json.loads(out)


def table(path: Path, names: list[str]) -> None:
    print(
        "| work | s | CPU s | MB at most | sends beside it: p50, p99, max ms | |\n"
        + "|---" * 6
        + "|"
    )
    for name in names:
        waits: dict[str, object] = {}
        if name in BESIDE:
            with sending(path, waits):
                out, _ = child(path, "--do", name).communicate()
        else:
            out, _ = child(path, "--do", name).communicate()
        row = json.loads(out)
        beside = ", ".join(f"{wait:,.1f}" for wait in waits.values())
        cells = (name, f"{row['wall']:.2f}", f"{row['cpu']:.2f}", f"{row['peak']:.0f}", beside)
        print("|", " | ".join((*cells, row["note"])), "|", flush=True)
    rmtree(f"{path}.published", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--make", type=int, metavar="RECORDS")
    parser.add_argument("--only", action="append", choices=WORKS)
    parser.add_argument("--do", choices=WORKS, help=argparse.SUPPRESS)
    parser.add_argument("--send", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    path = asked.file.resolve()
    if asked.make:
        large.make(path, asked.make, SHAPE)
    elif asked.do or asked.send:
        print(json.dumps(send(path) if asked.send else do(path, asked.do)))
    else:
        table(path, asked.only or list(WORKS))


if __name__ == "__main__":
    main()
