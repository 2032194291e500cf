"""How long a message takes: from before its `send` until another thread or process has it, or its result.

    python -m benchmarks.latency poll|process FILE MESSAGES   # a part that runs in a process of its own

A message is the time at which it is sent, by the system's clock. Messages come singly, with a pause that
lets every reader wait again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic_ns, sleep

import eosdb
from benchmarks.child import ROOT
from benchmarks.measure import Case, Round, Row, Settings, Target
from benchmarks.writing import FULL

SENT = "send, alone"
THREAD, PROCESS = "send to poll, in one process", "send to poll, of another process"
RESULT = "send to poll of a result of `process`, in three processes"
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_PAUSE_S = 0.02
_WARM = 20


def cases(settings: Settings) -> list[Case]:
    messages = settings.size(1_000, 20)

    def one_round(folder: Path) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for number, (name, reads) in enumerate(_READERS.items()):
            path = folder / f"{number}.db"
            with eosdb.connect(path) as db:
                for topic in ("in", "out"):
                    db.admin.create_topic(topic)
                topic = "in" if name == RESULT else "out"
                with reads(path, messages) as arrived:
                    sent = _send(db, topic, messages)
                    found |= _shares(name, arrived())
            if name == PROCESS:
                found |= _shares(SENT, sent)
        return found

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        yield one_round

    return [
        Case(
            name="latency",
            title="A message every 20 ms: from `send` until it is there",
            unit="ms",
            rows=[Row(f"{n}, {share}", FULL) for n in (SENT, *_READERS) for share in SHARES],
            targets=[
                Target(f"{name}, p50", f"{SENT}, p50", None, at_least=False) for name in _READERS
            ],
            open=opened,
        )
    ]


def _shares(name: str, times_ms: list[float]) -> dict[str, float]:
    ordered = sorted(times_ms[_WARM:])
    return {f"{name}, {s}": ordered[int(at * len(ordered))] for s, at in SHARES.items()}


def _send(db: eosdb.Database, topic: str, messages: int) -> list[float]:
    """Send the messages; returns how long each call took (ms)."""
    took: list[float] = []
    with db.producer() as producer:
        for _ in range(messages + _WARM):
            start = monotonic_ns()
            producer.send(topic, str(start)).result()
            took.append((monotonic_ns() - start) / 1e6)
            sleep(_PAUSE_S)
    return took


def _arrivals(db: eosdb.Database, messages: int, is_ready: Callable[[], object]) -> list[float]:
    """How long (ms) each message took until `poll` had returned it."""
    took: list[float] = []
    with db.consumer("readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("out")
        while not consumer.assignment():
            consumer.poll(10)
        is_ready()
        while len(took) < messages + _WARM:
            for record in consumer.poll(1_000):
                took.append((monotonic_ns() - int(record.value or 0)) / 1e6)
    return took


Arrived = Callable[[], list[float]]


@contextmanager
def _a_thread(path: Path, messages: int) -> Iterator[Arrived]:
    ready = Event()
    with eosdb.connect(path) as db, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(_arrivals, db, messages, ready.set)
        ready.wait()
        yield reading.result


@contextmanager
def _a_process(path: Path, messages: int) -> Iterator[Arrived]:
    with _part("poll", path, messages) as reader:
        yield lambda: json.loads(reader.communicate()[0])


@contextmanager
def _a_processor(path: Path, messages: int) -> Iterator[Arrived]:
    with ExitStack() as stack:
        processor = stack.enter_context(_part("process", path, messages))
        stack.callback(processor.terminate)
        yield stack.enter_context(_a_process(path, messages))


@contextmanager
def _part(work: str, path: Path, messages: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.latency", work, str(path), str(messages)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as part:
        assert part.stdout is not None
        assert part.stdout.readline() == "ready\n"
        yield part


_READERS = {THREAD: _a_thread, PROCESS: _a_process, RESULT: _a_processor}


def main(work: str, path: str, messages: str) -> None:
    def ready() -> None:
        print("ready", flush=True)

    with eosdb.connect(path) as db:
        if work == "poll":
            print(json.dumps(_arrivals(db, int(messages), ready)))
        else:
            processor = db.processor("in", lambda record: record.value, "out", group_id="workers")
            ready()
            processor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
