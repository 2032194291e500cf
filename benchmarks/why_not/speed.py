"""What it costs: wall time and CPU time, one by one and in batches, memory, bytes on disk, lines of code.

Systems take turns within each round. A row shows the least of the rounds: other processes on the
machine only add to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.why_not import servers
from benchmarks.why_not.child import WARM
from benchmarks.why_not.runs import Place, served
from benchmarks.why_not.systems import driver

BATCH = 100
CASES = ("produce 1", f"produce {BATCH}", "work 1", f"work {BATCH}")


@dataclass(slots=True)
class Figures:
    """Of one system, in each case: seconds of a message."""

    wall_s: dict[str, list[float]] = field(default_factory=dict)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    client_mb: float = 0
    server_mb: float = 0
    bytes_each: float | None = None

    def add(self, case: str, found: Mapping[str, float]) -> None:
        messages = found["messages"]
        self.wall_s.setdefault(case, []).append(found["wall_s"] / messages)
        cpu = found["client_s"] + found["server_s"]
        self.cpu_s.setdefault(case, []).append(cpu / messages)


def one_round(place: Place, run: str, figures: Figures, singly: int, batches: int) -> None:
    data, in_batches = place.server.data, driver(place.name).in_batches
    place.ask("create", run)
    figures.add("produce 1", place.ask("produce", run, count=singly, size=1))
    worked = place.ask("work", run, count=singly, size=1)
    figures.add("work 1", worked)
    before = servers.disk_bytes(data) if data else 0
    count = (batches + WARM) * BATCH
    figures.add(
        f"produce {BATCH}", place.ask("produce", run, first=singly, count=count, size=BATCH)
    )
    if data:
        figures.bytes_each = (servers.disk_bytes(data) - before) / count
    if in_batches:
        worked = place.ask("work", run, count=count, size=BATCH)
        figures.add(f"work {BATCH}", worked)
    figures.client_mb = worked["peak_mb"]
    figures.server_mb = servers.memory_mb(place.server.pids)


def measure(names: Iterable[str], rounds: int, singly: int, batches: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with ExitStack() as stack:
        places = [stack.enter_context(served(name)) for name in names]
        for number in range(rounds):
            for place in places:
                figures = found.setdefault(place.name, Figures())
                begun = time.monotonic()
                one_round(place, f"r{number}-{place.name}", figures, singly, batches)
                took_s = time.monotonic() - begun
                print(f"round {number + 1}, {place.name}: {took_s:.0f} s", file=sys.stderr)
    return found


def table(found: Mapping[str, Figures]) -> list[str]:
    """Markdown: microseconds of a message, and how many times eosdb's."""
    lines = [
        "| system | " + " | ".join(f"{case}: wall | CPU" for case in CASES) + " |",
        "| --- " + "| ---: " * (2 * len(CASES)) + "|",
    ]
    eosdb = found.get("eosdb", Figures())
    for name, figures in found.items():
        cells = [
            cell(times.get(case), ours.get(case))
            for case in CASES
            for times, ours in ((figures.wall_s, eosdb.wall_s), (figures.cpu_s, eosdb.cpu_s))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def cell(times: Sequence[float] | None, ours: Sequence[float] | None) -> str:
    if times is None:
        return "–"
    ratio = f" ({min(times) / min(ours):.2f})" if ours else ""
    return f"{min(times) * 1e6:,.0f} µs{ratio}"


def footprint(found: Mapping[str, Figures]) -> list[str]:
    lines = [
        "| system | besides the worker | server's memory | worker's memory | bytes a message |"
        " lines of the worker |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for name, figures in found.items():
        kind = driver(name)
        runs = "a server" if figures.server_mb else "none"
        size = "–" if figures.bytes_each is None else f"{figures.bytes_each:,.0f}"
        memory = f"{figures.server_mb:,.0f} MB | {figures.client_mb:,.0f} MB"
        lines.append(f"| {name} | {runs} | {memory} | {size} | {kind.worker_lines()} |")
    return lines
