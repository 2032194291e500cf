"""How long `eosdb.aio` keeps the loop from other work, and what fifty tasks send.

    python -m benchmarks.aio [--seconds 10] [--folder .]

Blocking is measured in two ways. *CPU time of a step* is what the loop's thread computes in one callback,
by its own clock: a crowded machine does not change it. *Lateness* is by how much a task that sleeps for a
millisecond wakes up too late: it includes waiting for Python's interpreter lock and for a core, so the
same is measured for a loop that has nothing else to do, alone and beside a thread that computes in Python.
Sending is compared with as many threads, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import shutil
import tempfile
import threading
from asyncio.events import Handle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, process_time, thread_time_ns
from typing import Any

import eosdb
import eosdb.aio
from eosdb.aio import AsyncDatabase

_LIMIT_MS = 5.0
_PAUSE_S = 0.05
"""How long those rest who could alone keep the interpreter busy."""
_READ_PAUSE_S = 0.5
"""Ten consumers read 200,000 records a second, half of what one interpreter reads."""
_SENDERS, _CONSUMERS, _BATCH = 50, 10, 10_000


class Steps:
    """The times of every callback that the loop runs."""

    def __init__(self) -> None:
        self.cpu_ms: list[float] = []
        self.wall_ms: list[float] = []
        self.worst: tuple[float, str] = (0.0, "")
        self.collecting_ms: list[float] = []
        """Of the steps, those parts that were Python's garbage collector: it runs in whichever thread
        makes the next object, over everything that there is."""
        self._collected_ns = self._began_ns = 0
        self._thread = threading.get_ident()
        self._original: Callable[..., Any] = Handle._run

    def __enter__(self) -> Steps:
        steps, original = self, self._original

        def run(self: Handle) -> None:
            steps._collected_ns = 0
            wall, cpu = perf_counter_ns(), thread_time_ns()
            original(self)
            cpu, wall = thread_time_ns() - cpu, perf_counter_ns() - wall
            if steps._collected_ns:
                steps.collecting_ms.append(steps._collected_ns / 1e6)
                cpu -= steps._collected_ns
            steps.cpu_ms.append(cpu / 1e6)
            steps.wall_ms.append(wall / 1e6)
            if cpu / 1e6 > steps.worst[0]:
                steps.worst = (cpu / 1e6, repr(self)[:200])

        Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.append(self._collecting)
        return self

    def _collecting(self, phase: str, _: object) -> None:
        if threading.get_ident() == self._thread:
            if phase == "start":
                self._began_ns = thread_time_ns()
            else:
                self._collected_ns += thread_time_ns() - self._began_ns

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collecting)
        Handle._run = self._original  # type: ignore[method-assign]


async def lateness(seconds: float) -> list[float]:
    """By how many ms a sleep of one millisecond was too long, again and again."""
    found: list[float] = []
    until = perf_counter() + seconds
    while (now := perf_counter()) < until:
        await asyncio.sleep(0.001)
        found.append((perf_counter() - now) * 1000 - 1)
    return found


def shown(found: list[float]) -> str:
    ordered = sorted(found)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"median {median(ordered):6.2f}  p99 {p99:6.2f}  max {ordered[-1]:7.2f} ms"


def computing(seconds: float) -> Callable[[], None]:
    """A thread that computes in Python, as one that polls or sends does."""

    def compute() -> None:
        until = perf_counter() + seconds
        while perf_counter() < until:
            sorted(range(20_000), key=lambda i: -i)

    thread = threading.Thread(target=compute)
    thread.start()
    return thread.join


async def crowd(db: AsyncDatabase, seconds: float) -> dict[str, int]:
    """Fifty senders, ten consumers with large batches, blocks, queries, transactions."""
    done: dict[str, int] = {}
    until = perf_counter() + seconds

    async def again(name: str, step: Callable[[], Awaitable[int]], pause: float = _PAUSE_S) -> None:
        while perf_counter() < until:
            done[name] = done.get(name, 0) + await step()
            await asyncio.sleep(pause)

    producer = db.producer()
    transactional = db.producer(transactional_id="tx")

    async def send() -> int:
        await producer.send_and_wait("small", b"x" * 100)
        return 1

    async def many() -> int:
        for _ in range(1_000):
            await producer.send("small", b"x" * 100)
        await producer.flush()
        return 1_000

    async def transact() -> int:
        async with transactional.transaction():
            await transactional.send_and_wait("small", b"x" * 100)
        return 1

    async def block() -> int:
        async with db.begin() as tx:
            await tx.publish("small", b"x")
            await asyncio.sleep(0)
        return 1

    async def query() -> int:
        await db.query("SELECT * FROM committed_records LIMIT 1000")
        return 1

    async def consume(number: int) -> None:
        async with db.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([eosdb.TopicPartition("large", 0)])

            async def poll() -> int:
                found = await consumer.getmany(max_records=_BATCH, timeout_ms=100)
                if not found:
                    await consumer.seek_to_beginning()
                return sum(map(len, found.values()))

            async def iterate() -> int:
                count = 0
                async for _ in consumer:
                    count += 1
                    if count == 10_000:
                        break
                if await consumer.position(eosdb.TopicPartition("large", 0)) > 80_000:
                    await consumer.seek_to_beginning()
                return count

            await again("records read", poll if number % 2 else iterate, _READ_PAUSE_S)

    async with producer, transactional, asyncio.TaskGroup() as tasks:
        for _ in range(_SENDERS):
            tasks.create_task(again("records sent and waited for", send, 0))
        tasks.create_task(again("records sent", many))
        tasks.create_task(again("transactions", transact, 0))
        tasks.create_task(again("blocks", block))
        tasks.create_task(again("queries", query))
        for number in range(_CONSUMERS):
            tasks.create_task(consume(number))
    return done


async def blocking(path: Path, seconds: float) -> None:
    alone = await lateness(seconds / 4)
    join = computing(seconds / 4)
    beside = await lateness(seconds / 4)
    await asyncio.to_thread(join)
    async with eosdb.aio.connect(path) as db:
        await db.admin.create_topic("small", 3)
        await db.admin.create_topic("large", 1)
        async with db.producer() as producer:
            await producer.send_many("large", (b"x" * 100 for _ in range(100_000)))
        with Steps() as steps:
            late = asyncio.create_task(lateness(seconds))
            done = await crowd(db, seconds)
            ticks = await late
    print(f"what was done in {seconds:g} s: {done}")
    print(f"CPU time of a step      {shown(steps.cpu_ms)}")
    print(
        f"  over {_LIMIT_MS:g} ms: {sum(t > _LIMIT_MS for t in steps.cpu_ms)} of {len(steps.cpu_ms)}"
    )
    print(f"garbage collection in a step  {shown(steps.collecting_ms)}")
    print(f"  the longest: {steps.worst}")
    print(f"wall time of a step     {shown(steps.wall_ms)}")
    print(f"lateness, idle loop     {shown(alone)}")
    print(f"lateness, idle loop beside a computing thread  {shown(beside)}")
    print(f"lateness, at work       {shown(ticks)}")


def sending_in_threads(path: Path, each: int, producers: int) -> tuple[float, float, float]:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t", 3, exist_ok=True)
        made = [db.producer() for _ in range(producers)]
        before = db.metrics()["commit-total"]

        def send(number: int) -> None:
            for _ in range(each):
                made[number % producers].send("t", b"x" * 100).result()

        threads = [threading.Thread(target=send, args=(n,)) for n in range(_SENDERS)]
        wall, cpu = perf_counter(), process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall, cpu = perf_counter() - wall, process_time() - cpu
        return wall, cpu, db.metrics()["commit-total"] - before


async def sending_in_tasks(path: Path, each: int, producers: int) -> tuple[float, float, float]:
    async with eosdb.aio.connect(path) as db:
        await db.admin.create_topic("t", 3, exist_ok=True)
        made = [db.producer() for _ in range(producers)]
        for producer in made:
            await producer.start()
        before = (await db.run(eosdb.Database.metrics))["commit-total"]

        async def send(number: int) -> None:
            for _ in range(each):
                await made[number % producers].send_and_wait("t", b"x" * 100)

        wall, cpu = perf_counter(), process_time()
        await asyncio.gather(*(send(number) for number in range(_SENDERS)))
        wall, cpu = perf_counter() - wall, process_time() - cpu
        return wall, cpu, (await db.run(eosdb.Database.metrics))["commit-total"] - before


def sending(folder: Path, rounds: int, each: int) -> None:
    ways: dict[str, Callable[[Path], tuple[float, float, float]]] = {
        "50 threads, one producer": lambda path: sending_in_threads(path, each, 1),
        "50 threads, 50 producers": lambda path: sending_in_threads(path, each, 50),
        "50 tasks, one producer": lambda path: asyncio.run(sending_in_tasks(path, each, 1)),
        "50 tasks, 50 producers": lambda path: asyncio.run(sending_in_tasks(path, each, 50)),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            found[name].append(way(folder / f"{name.replace(' ', '')}{number}.db"))
    count = _SENDERS * each
    print(f"\n{count} records, each waited for; the best of {rounds} rounds")
    for name, times in found.items():
        wall, cpu, commits = min(times)
        print(
            f"{name:26} {count / wall:8.0f} records/s  CPU {cpu / count * 1e6:5.0f} µs each  "
            f"{count / max(commits, 1):5.1f} records a commit"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--folder", default=".")
    given = parser.parse_args()
    logging.getLogger("eosdb.client").setLevel(
        logging.ERROR
    )  # Who sends record by record is warned.
    folder = Path(tempfile.mkdtemp(prefix="bench-aio-", dir=given.folder))
    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(blocking(folder / "blocking.db", given.seconds))
            sending(folder, given.rounds, given.each)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
