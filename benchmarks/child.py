"""What is measured in a process of its own, for the most memory that it ever held.

    python -m benchmarks.child scan|verify|rebuild|send|commit PATH …

Prints one JSON object: rate or times, and peak memory.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, sleep

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


@contextmanager
def writers(
    path: Path, who: str, numbers: Sequence[int], partitions: int
) -> Iterator[tuple[list[Callable[[int], object]], Callable[[], float]]]:
    """What commits a record for each number, and how many syncs there have been. The writers of one
    process share a database object; raw ones have a connection each."""
    with ExitStack() as opened:
        if who == "raw sqlite3":
            files = [
                opened.enter_context(closing(raw.open_file(path, create=False))) for _ in numbers
            ]
            insert, row = raw.shape().insert, raw.shape().row
            done = [0] * len(numbers)

            def insert_one(at: int, i: int) -> None:
                files[at].execute(insert, row(numbers[at] + i * partitions))
                done[at] += 1

            yield [partial(insert_one, at) for at in range(len(numbers))], lambda: sum(done)
            return
        db = opened.enter_context(eosdb.connect(path))
        in_transactions = who.endswith("transactions")
        producers = [
            opened.enter_context(
                db.producer(transactional_id=f"p{number}" if in_transactions else None)
            )
            for number in numbers
        ]

        def send(at: int, _: int) -> None:
            producers[at].send("t", VALUE, partition=numbers[at]).result()

        def send_in_transaction(at: int, _: int) -> None:
            with producers[at].transaction():
                producers[at].send("t", VALUE, partition=numbers[at])

        if in_transactions:
            for producer in producers:
                producer.init_transactions()
        one = send_in_transaction if in_transactions else send
        yield [partial(one, at) for at in range(len(numbers))], lambda: db.metrics()["fsync-total"]


def timed(write: Callable[[int], object], commits: int, pause_s: float = 0) -> list[float]:
    """How long each commit took, after a pause."""
    waits = []
    for i in range(1, commits + 1):
        sleep(pause_s)
        begun = perf_counter()
        write(i)
        waits.append(perf_counter() - begun)
    return waits


def commit(
    path: Path, who: str, number: int, partitions: int, commits: int, pause_ms: int
) -> dict[str, object]:
    """Commits of one record: begins at a line on stdin. Tells how long each took, the CPU and the syncs."""
    with writers(path, who, [number], partitions) as ((write,), syncs):
        write(0)
        print("ready", flush=True)
        sys.stdin.readline()
        start, cpu, before = perf_counter(), process_time(), syncs()
        waits = timed(write, commits, pause_ms / 1000)
        return {
            "start": start, "end": perf_counter(), "waits": waits, "cpu": process_time() - cpu,
            "syncs": syncs() - before,
        }  # fmt: skip


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
