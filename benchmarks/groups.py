"""What waiting, waking and processing cost: an idle consumer, a commit in another process, the processing
loop. Prints a table and writes `GROUPS.md` beside it.

    python -m benchmarks.groups
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import eosdb
from benchmarks import machine, raw

HERE = Path(__file__).parent
PARTITIONS = 12
ROUNDS = 5
RECORDS = 20_000
WAKES = 200

READER = """
import sys, time, eosdb
with eosdb.connect(sys.argv[1]) as db, db.consumer("g") as consumer:
    consumer.subscribe("t")
    consumer.poll()
    print("ready", flush=True)
    for line in sys.stdin:
        record, = consumer.poll(60_000)
        print((time.time_ns() - int(record.value)) / 1e6, flush=True)
"""


def idle_share(path: Path, seconds: float = 10.0) -> float:
    """The share of a core that a consumer takes which waits for records, in percent."""
    with eosdb.connect(path) as db, db.consumer("idle") as consumer:
        consumer.subscribe("t")
        consumer.poll()
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        while time.monotonic() - start < seconds:
            consumer.poll(timeout_ms=1_000)
        after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - start
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / elapsed * 100


def wake_ups(path: Path) -> list[float]:
    """From `send` in this process to the record in another, in ms, durability and all."""
    child = subprocess.Popen(
        [sys.executable, "-c", READER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    found = []
    with eosdb.connect(path) as db, db.producer() as producer:
        for number in range(WAKES):
            child.stdin.write("next\n")
            child.stdin.flush()
            time.sleep(0.05)
            producer.send("t", b"%d" % time.time_ns(), partition=number % PARTITIONS)
            found.append(float(child.stdout.readline()))
    child.stdin.close()
    child.wait()
    return found


def rebalance_ms(path: Path, group: str) -> float:
    """How long a second member takes to get its share from one that waits."""
    code = READER.replace('"g"', f'"{group}", partition_assignment_strategy="cooperative-sticky"')
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    child.stdin.write("wait\n")
    child.stdin.flush()
    time.sleep(0.3)
    with (
        eosdb.connect(path) as db,
        db.consumer(group, partition_assignment_strategy="cooperative-sticky") as consumer,
    ):
        start = time.monotonic()
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(timeout_ms=10)
        elapsed = (time.monotonic() - start) * 1000
    child.kill()
    child.wait()
    return elapsed


def processed_per_second(folder: Path) -> float:
    """Records through `db.processor`, 500 to a transaction."""
    with eosdb.connect(folder / "process.db") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, PARTITIONS)
        with db.producer(linger_ms=1_000) as producer:
            for number in range(RECORDS):
                producer.send("in", b"%d" % number, key=b"%d" % number)
        processor = db.processor(
            "in", lambda record: record.value, "out", group_id="g", transactional_id="g"
        )
        start = time.monotonic()
        processor.run(until_idle_ms=100)
        return RECORDS / (time.monotonic() - start - 0.1)


def raw_per_second(folder: Path) -> float:
    """The same by hand in SQLite: read 500 rows, write 500 and the position in one commit."""
    file = raw.open_file(folder / "raw.db", create=False)
    file.execute("CREATE TABLE source (id INTEGER PRIMARY KEY, key BLOB, value BLOB)")
    file.execute("CREATE TABLE sink (id INTEGER PRIMARY KEY, key BLOB, value BLOB)")
    file.execute("CREATE TABLE position (id INT)")
    file.execute("INSERT INTO position VALUES (0)")
    file.execute("BEGIN")
    rows = [(b"%d" % n, b"%d" % n) for n in range(RECORDS)]
    file.executemany("INSERT INTO source (key, value) VALUES (?, ?)", rows)
    file.execute("COMMIT")
    start = time.monotonic()
    while True:
        file.execute("BEGIN IMMEDIATE")
        (done,) = file.execute("SELECT id FROM position").fetchone()
        batch = file.execute(
            "SELECT id, key, value FROM source WHERE id > ? ORDER BY id LIMIT 500", (done,)
        ).fetchall()
        if not batch:
            file.execute("ROLLBACK")
            break
        for _, key, value in batch:
            file.execute("INSERT INTO sink (key, value) VALUES (?, ?)", (key, value))
        file.execute("UPDATE position SET id = ?", (batch[-1][0],))
        file.execute("COMMIT")
    elapsed = time.monotonic() - start
    file.close()
    return RECORDS / elapsed


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
        path = Path(name, "groups.db")
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", PARTITIONS)
        wakes = wake_ups(path)
        idle = idle_share(path)
        rebalances = [rebalance_ms(path, f"r{number}") for number in range(ROUNDS)]
        ours, theirs = [], []
        for number in range(ROUNDS):
            folder = Path(name, str(number))
            folder.mkdir()
            ours.append(processed_per_second(folder))
            theirs.append(raw_per_second(folder))
    eosdb_rate, raw_rate = statistics.median(ours), statistics.median(theirs)
    lines = [
        "# Groups and processing",
        "",
        "Made by `make bench`. Compare the ratios, not the rates. "
        f"{machine.software()}; {PARTITIONS} partitions.",
        "",
        "| what | found |",
        "| --- | ---: |",
        f"| share of a core that an idle consumer takes | {idle:.2f} % |",
        f"| from `send` to the record in another process, median | {statistics.median(wakes):.1f} ms |",
        f"| … the slowest of {WAKES} | {max(wakes):.1f} ms |",
        f"| a second member gets its share, median | {statistics.median(rebalances):.0f} ms |",
        f"| consume, process, produce, records per second | {eosdb_rate:,.0f} |",
        f"| the same by hand in raw sqlite3 | {raw_rate:,.0f} |",
        f"| ratio | {eosdb_rate / raw_rate:.2f} |",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "GROUPS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
