"""What the suite costs: the CPU time of each test in `build/test*.xml`, and `tests/durations.md` from that.

`make durations` runs everything on an otherwise idle machine and writes the file anew. CONTRIBUTING.md says
how to read it.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

CPU: Final = "cpu_s"
"""The property of a test in the report: seconds of CPU of its process and of the children that ended."""
FILE: Final = Path(__file__).with_suffix(".md")
SLOWEST: Final = 100
_BEGAN: Final = pytest.StashKey[float]()


@dataclass(frozen=True, slots=True)
class Duration:
    """What one test took, with its fixtures, in seconds."""

    room: str
    name: str
    wall_s: float
    cpu_s: float


def _cpu_s() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_BEGAN] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((CPU, f"{_cpu_s() - item.stash[_BEGAN]:.3f}"))


def read(report: Path) -> list[Duration]:
    """The tests of a JUnit report."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.attrib["classname"].split(".")
        cpu = [each.attrib["value"] for each in case.iter("property") if each.attrib["name"] == CPU]
        found.append(
            Duration(
                room=module[1] if len(module) > 2 else module[-1],
                name=f"{'/'.join(module)}.py::{case.attrib['name']}",
                wall_s=float(case.attrib["time"]),
                cpu_s=float(cpu[0]) if cpu else 0.0,
            )
        )
    return found


def table(durations: Iterable[Duration]) -> str:
    """The page: the seconds of each room, and the slowest tests."""
    rooms: dict[str, list[Duration]] = defaultdict(list)
    for each in durations:
        rooms[each.room].append(each)
    slowest = sorted((each for room in rooms.values() for each in room), key=_wall, reverse=True)
    lines = [
        "# What the suite costs",
        "",
        "Written by `make durations`. Wall and CPU time in seconds, fixtures included. CPU is that of the",
        "worker and of the children that ended; a JVM, a browser or a server that lives on is not in it.",
        "",
        "| room | tests | wall | CPU |",
        "| --- | ---: | ---: | ---: |",
    ]
    rows = [(name, len(of), sum(map(_wall, of)), sum(map(_cpu, of))) for name, of in rooms.items()]
    rows.sort(key=lambda row: -row[2])
    rows.append(("**all**", len(slowest), sum(map(_wall, slowest)), sum(map(_cpu, slowest))))
    lines += [f"| {name} | {count} | {wall:.0f} | {cpu:.0f} |" for name, count, wall, cpu in rows]
    lines += [
        "",
        f"The {SLOWEST} slowest tests:",
        "",
        "| wall | CPU | test |",
        "| ---: | ---: | --- |",
    ]
    lines += [
        f"| {each.wall_s:.1f} | {each.cpu_s:.1f} | `{each.name.replace('|', chr(92) + '|')}` |"
        for each in slowest[:SLOWEST]
    ]
    return "\n".join(lines) + "\n"


def _wall(duration: Duration) -> float:
    return duration.wall_s


def _cpu(duration: Duration) -> float:
    return duration.cpu_s


if __name__ == "__main__":
    FILE.write_text(table(each for name in sys.argv[1:] for each in read(Path(name))))
