"""What is measured in a process of its own, for the most memory that it ever held.

    python -m benchmarks.child scan|verify|rebuild|send|commit PATH …

Prints one JSON object: rate or times, and peak memory.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter

import eosdb
from benchmarks import raw
from benchmarks.raw import VALUE

ROOT = Path(__file__).parents[1]


def run(action: str, path: Path, *arguments: object) -> Mapping[str, float]:
    """What the child found. Raises CalledProcessError when it failed; its complaint is on stderr."""
    command = [sys.executable, "-m", "benchmarks.child", action, str(path), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def peak_mb() -> float:
    """The most memory this process has held so far. Not getrusage: a child begins with its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not say VmHWM")


def scan(path: Path) -> dict[str, float]:
    """Plain iteration over whole rows."""
    with closing(sqlite3.connect(path)) as file:
        start, count = perf_counter(), 0
        for _ in file.execute("SELECT * FROM records"):
            count += 1
        return {"rate": count / (perf_counter() - start)}


def replay(path: Path, action: str) -> dict[str, float]:
    with closing(sqlite3.connect(path)) as file:
        ((count,),) = file.execute("SELECT count(*) FROM records").fetchall()
    with eosdb.connect(path) as db:
        start = perf_counter()
        if action == "verify":
            assert db.verify().ok
        else:
            db.rebuild()
        return {"rate": count / (perf_counter() - start)}


def send(path: Path, records: int, size: int) -> dict[str, float]:
    """Transactions of `size` records; the peak after a tenth of them, and at the end."""
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        with db.producer(transactional_id="memory") as producer:
            producer.init_transactions()
            early, start = 0.0, perf_counter()
            for done in range(0, records, size):
                if not early and done >= records // 10:
                    early = peak_mb()
                with producer.transaction():
                    for _ in range(size):
                        producer.send("t", VALUE)
            return {"rate": records / (perf_counter() - start), "early": early}


def commit(path: Path, who: str, number: int, partitions: int, commits: int) -> dict[str, object]:
    """Commits of one record: begins at a line on stdin, and tells how long each took."""
    waits: list[float] = []
    with ExitStack() as opened:
        if who == "eosdb":
            producer = opened.enter_context(opened.enter_context(eosdb.connect(path)).producer())

            def write(i: int) -> None:
                producer.send("t", VALUE, partition=number).result()
        else:
            file = opened.enter_context(closing(raw.open_file(path, create=False)))
            insert, row = raw.shape().insert, raw.shape().row

            def write(i: int) -> None:
                file.execute(insert, row(number + i * partitions))

        write(0)
        print("ready", flush=True)
        sys.stdin.readline()
        start = perf_counter()
        for i in range(1, commits + 1):
            begun = perf_counter()
            write(i)
            waits.append(perf_counter() - begun)
        return {"start": start, "end": perf_counter(), "waits": waits}


def main(action: str, name: str, *arguments: str) -> None:
    path = Path(name)
    found: Mapping[str, object]
    match action:
        case "scan":
            found = scan(path)
        case "verify" | "rebuild":
            found = replay(path, action)
        case "send":
            found = send(path, int(arguments[0]), int(arguments[1]))
        case "commit":
            found = commit(path, arguments[0], *map(int, arguments[1:]))
        case _:
            raise SystemExit(f"no action {action!r}")
    print(json.dumps({**found, "peak": peak_mb()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
