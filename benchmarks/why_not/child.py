"""A producer or a worker in a process of its own.

python -m benchmarks.why_not.child ACTION SYSTEM ADDRESS RUN [NAME=NUMBER ...]

Actions: `create`; `produce` and `work`, measured, which print one JSON object; `life`, a worker that
prints a line when it has its
first message, and is killed by whoever started it, or stops itself (SIGSTOP) within its work on the
message `stop_at`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from benchmarks.why_not import servers
from benchmarks.why_not.contract import FOREVER, Driver, number_of, value_of
from benchmarks.why_not.systems import driver as driver_of

WARM = 5
"""Messages that are sent before the clock starts: they connect."""


class Meter:
    """Wall time, and the CPU time of this process and of the servers, since it was started."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.start()

    def start(self) -> None:
        self._began = self._now()

    def read(self) -> dict[str, float]:
        names = ("wall_s", "client_s", "server_s")
        past = zip(names, self._now(), self._began, strict=True)
        return {name: now - began for name, now, began in past}

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), servers.cpu_s(self._pids)


def produce(driver: Driver, numbers: Mapping[str, float], meter: Meter) -> dict[str, float]:
    count, size = int(numbers["count"]), int(numbers["size"])

    def values() -> Iterator[str]:
        for number in range(count):
            if number == WARM * size:
                meter.start()
            # No number twice in a run: some systems know a message again by it.
            yield value_of(int(numbers.get("first", 0)) + number)

    driver.produce(values(), size)
    return meter.read() | {"messages": count - WARM * size}


def work(driver: Driver, numbers: Mapping[str, float], meter: Meter) -> dict[str, float]:
    """The clock starts with the first message, so connecting and joining are not in it."""
    count, begun = int(numbers["count"]), False

    def handle(value: str) -> str:
        nonlocal begun
        if not begun:
            begun = True
            meter.start()
        return value

    driver.work(handle, int(numbers["size"]), count, 10)
    return meter.read() | {"messages": count, "peak_mb": servers.peak_mb()}


def life(driver: Driver, numbers: Mapping[str, float], output: TextIO) -> None:
    """`pause_ms` in each message stands for the work."""
    begun = False

    def handle(value: str) -> str:
        nonlocal begun
        if not begun:
            begun = True
            print("begun", file=output, flush=True)
        time.sleep(numbers["pause_ms"] / 1000)
        if number_of(value) == numbers.get("stop_at", -1):
            print("stopping", file=output, flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        return value

    driver.work(handle, 1, FOREVER, numbers["idle_s"])


def main(arguments: Sequence[str]) -> None:
    action, system, address, run, *rest = arguments
    numbers = {name: float(number) for name, _, number in (word.partition("=") for word in rest)}
    driver = driver_of(system)(address, run, numbers.get("lease_s", 0))
    meter = Meter([int(numbers[name]) for name in numbers if name.startswith("pid")])
    if action == "create":
        driver.create()
    elif action == "life":
        life(driver, numbers, sys.stdout)
    elif action == "produce":
        print(json.dumps(produce(driver, numbers, meter)))
    else:
        assert action == "work", action
        print(json.dumps(work(driver, numbers, meter)))


if __name__ == "__main__":
    main(sys.argv[1:])
