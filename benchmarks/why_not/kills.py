"""The worker killed (SIGKILL) at random moments and started again: what is lost, twice, late."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.why_not.contract import Verdict
from benchmarks.why_not.runs import said, served
from benchmarks.why_not.systems import driver

PAUSE_MS = 2
"""How long the work on one message takes."""
LIFE_S = 0.15
"""A worker is killed at most so long after its first message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    kills: int
    sent: int
    verdict: Verdict


def kill_often(name: str, kills: int, sent: int, seed: int, patience_s: float = 2) -> Outcome:
    """`patience_s`: how much longer than a lease the last worker waits for what comes late."""
    chance, struck = random.Random(seed), 0
    idle_s = driver(name).lease_min_s + patience_s
    with served(name) as place:
        place.ask("create", "kills")
        place.ask("produce", "kills", count=sent, size=100)
        while struck < kills:
            with place.start("kills", pause_ms=PAUSE_MS, idle_s=idle_s) as worker:
                if not said(worker, "begun"):
                    check(name, worker.wait())
                    break  # Nothing is left: the messages were too few.
                time.sleep(chance.uniform(0, LIFE_S))
                worker.kill()
                struck += 1
        with place.start("kills", pause_ms=0, idle_s=idle_s) as worker:
            check(name, worker.wait())
        return Outcome(name, struck, sent, place.verdict("kills", sent))


def check(name: str, code: int) -> None:
    """A worker that failed would look like one that lost messages."""
    if code:
        raise RuntimeError(f"{name}: a worker that nobody killed ended with {code}")


def table(outcomes: Iterator[Outcome]) -> Iterator[str]:
    yield "| system | kills | messages | lost | twice | late |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for found in outcomes:
        counts = (found.verdict.lost, found.verdict.duplicated, found.verdict.late)
        cells = " | ".join(map(str, counts))
        yield f"| {found.name} | {found.kills} | {found.sent:,} | {cells} |"
