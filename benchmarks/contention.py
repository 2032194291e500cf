"""Cases about many writers of one file: threads, which share commits, and processes, which take turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import eosdb
from benchmarks import child, peers, raw
from benchmarks.measure import Case, NotMeasured, Round, Row, Settings, Target
from benchmarks.writing import FULL, if_there, peer_row

COUNTS = (1, 2, 4, 8)
EOSDB, RAW, TRANSACTIONS = "eosdb", "raw sqlite3", "eosdb, transactions"
WHO = (EOSDB, RAW, TRANSACTIONS)
PAUSE_MS = 10
PAUSES = f"{EOSDB}, 1 process that pauses for {PAUSE_MS} ms, CPU"
"""The CPU of a commit in a process whose caches are cold. Those that take turns need as much."""
FACTS = {"CPU": "ms", "syncs": "for each", "median wait": "ms", "longest wait": "ms"}
"""The figures of a commit besides the rate, with their units."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The result of some writers: their commits a second together, the time of each commit, and the CPU
    (ms) and syncs of one."""

    rate: float
    waits_ms: list[float]
    cpu_ms: float
    syncs: float

    def facts(self) -> dict[str, float]:
        values = (self.cpu_ms, self.syncs, statistics.median(self.waits_ms), max(self.waits_ms))
        return dict(zip(FACTS, values, strict=True))


Write = Callable[[Path, str, int, int], Turns]
"""Commits of one record: kind of writers, number of writers, commits in all."""


def cases(settings: Settings) -> list[Case]:
    commits = settings.size(4_000, 80)
    threads = _case(settings, "threads", "thread", by_threads, commits)
    return [threads, _case(settings, "processes", "process", by_processes, commits)]


def _case(settings: Settings, plural: str, what: str, write: Write, commits: int) -> Case:
    counts = COUNTS[: settings.size(len(COUNTS), 2)]
    told = (counts[0], counts[-1])
    rows = [Row(_named(who, count, what), FULL) for who in WHO for count in counts]
    for who in WHO:
        for count in told:
            row = _named(who, count, what)
            rows += [Row(f"{row}, {fact}", FULL, unit) for fact, unit in FACTS.items()]
    queues = {}
    if what == "process":
        rows.append(Row(PAUSES, FULL, "ms"))
    else:
        for count in told:
            queue = peer_row(peers.QUEUE, _several(count, what))
            rows.append(queue)
            queues[queue.name] = if_there(
                peers.QUEUE, partial(peers.queue_put, records=commits, threads=count)
            )

    def one_round(folder: Path) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for who in WHO:
            for count in counts:
                place = folder / f"{count} {who}"
                place.mkdir()
                turns = write(_file(place, who, count), who, count, commits)
                row = _named(who, count, what)
                found[row] = turns.rate
                if count in told:
                    found |= {f"{row}, {fact}": value for fact, value in turns.facts().items()}
        if what == "process":
            place = folder / "pauses"
            place.mkdir()
            file = _file(place, EOSDB, 1)
            found[PAUSES] = by_processes(file, EOSDB, 1, commits // 10, PAUSE_MS).cpu_ms
        for name, put in queues.items():
            if put is not None:
                place = folder / name
                place.mkdir()
                with suppress(NotMeasured):
                    found[name] = put(place)
        return found

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        yield one_round

    def of(who: str, count: int, fact: str = "") -> str:
        return _named(who, count, what) + (f", {fact}" if fact else "")

    one, most = told
    targets = [
        target
        for who in (EOSDB, TRANSACTIONS)
        for target in (
            Target(of(who, most), of(who, one), None),
            Target(of(who, most, "CPU"), of(who, one, "CPU"), None, at_least=False),
        )
    ]
    if what == "thread":
        targets.append(Target(of(EOSDB, most), of(RAW, one), 1.2))
    else:
        targets.append(Target(of(EOSDB, most, "CPU"), PAUSES, None, at_least=False))
        targets.append(Target(of(EOSDB, most), of(RAW, most), None))
        for who, bound in ((EOSDB, 10), (RAW, None)):
            waits = of(who, most, "longest wait"), of(who, most, "median wait")
            targets.append(Target(*waits, bound, at_least=False))
    return Case(
        name=plural,
        title=f"Durable idempotent sends, or transactions, of one record, by several {plural} at once",
        unit="records/s",
        rows=rows,
        targets=targets,
        open=opened,
    )


def _file(folder: Path, who: str, partitions: int) -> Path:
    path = folder / "file.db"
    if who == RAW:
        raw.open_file(path).close()
    else:
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", partitions)
    return path


def by_threads(path: Path, who: str, count: int, commits: int) -> Turns:
    """Threads that share a database object, each with its own producer and partition."""
    with (
        child.writers(path, who, range(count), count) as (write, syncs),
        ThreadPoolExecutor(count) as pool,
    ):
        for one in write:
            one(0)
        start, cpu, before = perf_counter(), process_time(), syncs()
        found = list(pool.map(partial(child.timed, commits=commits // count), write))
        seconds, cpu = perf_counter() - start, process_time() - cpu
        return _turns(found, seconds, cpu, syncs() - before)


def by_processes(path: Path, who: str, count: int, commits: int, pause_ms: int = 0) -> Turns:
    """Processes, which begin together when all have written once, and pause before each commit."""
    with ExitStack() as all_of_them:
        writers = [
            all_of_them.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.child", "commit", str(path), who, str(number),
                     str(count), str(commits // count), str(pause_ms)],
                    cwd=child.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True,
                )
            )
            for number in range(count)
        ]  # fmt: skip
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        found = [json.loads(writer.communicate()[0]) for writer in writers]
    seconds = max(each["end"] for each in found) - min(each["start"] for each in found)
    cpu, syncs = (sum(each[fact] for each in found) for fact in ("cpu", "syncs"))
    return _turns([each["waits"] for each in found], seconds, cpu, syncs)


def _turns(waits: list[list[float]], seconds: float, cpu: float, syncs: float) -> Turns:
    waits_ms = [wait * 1000 for each in waits for wait in each]
    count = len(waits_ms)
    return Turns(count / seconds, waits_ms, cpu * 1000 / count, syncs / count)


def _named(who: str, count: int, what: str) -> str:
    return f"{who}, {_several(count, what)}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"
