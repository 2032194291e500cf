"""How long a group's work stands still when a member dies or hangs, and what noticing it costs. Prints a
table and writes `DEAD_MEMBERS.md` beside it.

    python -m benchmarks.dead_members [--kills 40] [--stops 5]

Three processes share six partitions and wait for records; nobody writes. Again and again one of them, drawn
by a seed, is killed or stopped, until the other two have been given all of its partitions; then another
takes its place. What looking costs is the difference between members with locks and members without, in
one run.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import eosdb
from benchmarks import machine
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.model.protocol.consumer_protocol import Subscription

FOLDER = Path(__file__).parent
PARTITIONS, MEMBERS = 6, 3
SESSION_MS = 6_000
WRITES = 4_000
IDLE_S = 10.0

MEMBER = """
import sys, time, eosdb
def say(partitions):
    print(time.monotonic(), *(tp.partition for tp in partitions), flush=True)
with eosdb.connect(sys.argv[1]) as db:
    consumer = db.consumer("g", session_timeout_ms=int(sys.argv[2]), heartbeat_interval_ms=1_000)
    consumer.subscribe("t", on_assign=say, on_revoke=lambda partitions: say(()))
    while True:
        consumer.poll(timeout_ms=10_000)
"""


class Process:
    """One member, and what it says that it has."""

    def __init__(self, path: Path) -> None:
        self.given_at = 0.0
        self.has: set[int] = set()
        self.child = subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(path), str(SESSION_MS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            at, *partitions = line.split()
            self.given_at, self.has = float(at), set(map(int, partitions))

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
        self._reader.join()


def until_shared(processes: list[Process]) -> float:
    """Wait until every partition has one owner. Returns when the last one was given (monotonic)."""
    while True:
        shares = [set(process.has) for process in processes]
        if all(shares) and sum(map(len, shares)) == PARTITIONS == len(set[int]().union(*shares)):
            return max(process.given_at for process in processes)
        time.sleep(0.002)


def standstills(path: Path, number: signal.Signals, times: int) -> list[float]:
    """From the signal to one of the members until the others have all partitions, in seconds."""
    rng, found = random.Random(times), list[float]()
    processes = [Process(path) for _ in range(MEMBERS)]
    for _ in range(times):
        until_shared(processes)
        time.sleep(rng.uniform(0.2, 1.2))  # At any moment between two looks and heartbeats.
        victim = processes.pop(rng.randrange(MEMBERS))
        start = time.monotonic()
        victim.child.send_signal(number)
        found.append(until_shared(processes) - start)
        victim.end()
        processes.append(Process(path))
    for process in processes:
        process.end()
    return found


def join(db: eosdb.Database, count: int, *, locks: bool) -> list[object]:
    """So many members of a group, and what they hold."""
    held = list[object]()
    wants = [("range", Subscription(("t",)).encode())]
    for _ in range(count):
        presence = db.broker.presence() if locks else None
        held.append(presence)
        db.broker.join_group(
            "many",
            protocols=wants,
            session_timeout_ms=1_800_000,
            owner_lock=0 if presence is None else presence.number,
        )
    return held


def cost_of_a_write(folder: Path, count: int, *, locks: bool) -> float:
    """Seconds of processor time, in a group of so many members."""
    with eosdb.connect(folder / f"{count}-{locks}.db", durability="off") as db:
        if "t" not in db.admin.list_topics():
            db.admin.create_topic("t", PARTITIONS)
        held = join(db, count, locks=locks)
        batch, tp = RecordBatch([Record(value=b"x" * 100)]), TopicPartition("t", 0)
        start = time.process_time()
        for _ in range(WRITES):
            db.broker.append(tp, batch)
        used = (time.process_time() - start) / WRITES
        for member in db.broker.describe_group("many").members if count else ():
            db.broker.leave_group("many", member.member_id)
        held.clear()
        return used


def idle_share(path: Path, *, static: bool, others: int) -> float:
    """The share of a core that a member takes which waits for records, in percent; a static one does not
    look whether others have died."""
    with eosdb.connect(path) as db:
        if "t" not in db.admin.list_topics():
            db.admin.create_topic("t", PARTITIONS)
        held = join(db, others, locks=True)
        instance = "one" if static else None
        group = f"waits {time.monotonic_ns()}"  # A static member does not leave.
        with db.consumer(group, group_instance_id=instance) as consumer:
            consumer.subscribe("t")
            consumer.poll()
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            while time.monotonic() - start < IDLE_S:
                consumer.poll(timeout_ms=1_000)
            after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - start
        held.clear()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / elapsed * 100


def best(measure: Callable[[bool], float], rounds: int = 3) -> tuple[float, float]:
    """The lowest of each, taken in turns: without locks, with them."""
    found = [(measure(False), measure(True)) for _ in range(rounds)]
    return min(a for a, _ in found), min(b for _, b in found)


def seconds(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} s | {min(found):.2f} s | {max(found):.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--stops", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
        folder = Path(name)
        path = folder / "group.db"
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", PARTITIONS)
        killed = standstills(path, signal.SIGKILL, options.kills)
        stopped = standstills(path, signal.SIGSTOP, options.stops)
        writes = {
            count: best(lambda locks, count=count: cost_of_a_write(folder, count, locks=locks))  # type: ignore[misc]
            for count in (0, 1, 10, 100)
        }
        idle = {
            others: best(
                lambda looks, others=others: idle_share(  # type: ignore[misc]
                    folder / f"idle{others}.db", static=not looks, others=others
                ),
                rounds=2,
            )
            for others in (0, 100)
        }
    lines = [
        "# Members that die",
        "",
        "Made by `python -m benchmarks.dead_members`. "
        f"{machine.software()}; {MEMBERS} processes, {PARTITIONS} partitions, heartbeats every second, "
        f"sessions of {SESSION_MS / 1000:.0f} s from the last heartbeat.",
        "",
        "| until the others have its partitions | median | shortest | longest |",
        "| --- | ---: | ---: | ---: |",
        f"| a member is killed, {len(killed)} times | {seconds(killed)} |",
        f"| a member is stopped, {len(stopped)} times | {seconds(stopped)} |",
        "",
        "| processor time | members without locks | with locks |",
        "| --- | ---: | ---: |",
        *(
            f"| of a write beside {count} members | {without * 1e6:.1f} µs | {with_ * 1e6:.1f} µs |"
            for count, (without, with_) in writes.items()
        ),
        *(
            f"| of a member that waits, {others} others in the file, share of a core | "
            f"{without:.2f} % | {with_:.2f} % |"
            for others, (without, with_) in idle.items()
        ),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (FOLDER / "DEAD_MEMBERS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
