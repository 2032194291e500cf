"""The gauntlet: every actor under every fault, judged alike.

    python -m tests.trials.hunts.gauntlet [--minutes 10] [--seed 0] [--actor NAME,…] [--fault NAME,…]
        [--page]

Cells (actor × fault) that can occur are drawn in a seeded order and put into sessions of one actor each,
which run in processes of their own, side by side. Each cell is run at least once, however long that takes,
and drawn again until the time is over. A session that failed is told with the command that repeats it,
and its files are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from tests.tidy.tree import ROOT
from tests.trials.hunts import page
from tests.trials.hunts.actors import ACTORS, cluster
from tests.trials.hunts.faults import FAULTS
from tests.trials.hunts.faults.fault import cannot

_LENGTH: Final = 12
"""Faults of a session."""
_HEAVY: Final = 4
"""More weight than this is heavy."""
_TOO_LONG_S: Final = 1_800
Cell = tuple[str, str]
Session = tuple[str, int, tuple[str, ...]]
"""Actor, seed and faults."""


@dataclass(slots=True)
class Tally:
    """What came of all sessions."""

    cells: Counter[Cell] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, report: dict[str, Any]) -> None:
        self.sessions += 1
        self.sums.update({key: report[key] for key in ("written", "refused", "unknown", "records")})
        for fault, times in report["struck"].items():
            self.cells[report["actor"], fault] += times


def cells(actors: Sequence[str], faults: Sequence[str]) -> list[Cell]:
    """Those that can occur."""
    return [
        (actor, fault)
        for actor in actors
        for fault in faults
        if cannot(ACTORS[actor], FAULTS[fault]) is None
    ]


def a_round(wanted: list[Cell], rng: random.Random, seeds: Iterator[int]) -> Iterator[Session]:
    """Sessions in which every cell is once."""
    parts: list[tuple[str, tuple[str, ...]]] = []
    for actor in dict.fromkeys(actor for actor, _ in wanted):
        faults = [fault for name, fault in wanted if name == actor]
        rng.shuffle(faults)
        parts += [
            (actor, tuple(faults[at : at + _LENGTH])) for at in range(0, len(faults), _LENGTH)
        ]
    rng.shuffle(parts)
    # The longest beginnings first, so that none of them is what everybody waits for.
    for actor, faults_of_one in sorted(parts, key=lambda part: -ACTORS[part[0]].weight):
        yield actor, next(seeds), faults_of_one


def run_session(actor: str, seed: int, faults: Sequence[str]) -> dict[str, Any]:
    """In a process of its own, which ends what it has started."""
    command = [
        sys.executable,
        "-m",
        "tests.trials.hunts.session",
        actor,
        str(seed),
        ",".join(faults),
    ]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
    try:
        said, reason = process.communicate(timeout=_TOO_LONG_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, reason = process.communicate()
        reason += f"\nthe session was not over after {_TOO_LONG_S} s"
    if said:
        report: dict[str, Any] = json.loads(said.splitlines()[-1])
        return report
    reason = reason[-2000:]
    empty = dict.fromkeys(("written", "refused", "unknown", "records", "seconds"), 0)
    return {**empty, "actor": actor, "struck": {}, "problems": [reason], "folder": ""}


def run(wanted: list[Cell], seed: int, minutes: float, jobs: int) -> Tally:
    """Run sessions until the time is over and every cell was run."""
    tally, end = Tally(), time.monotonic() + minutes * 60
    rng, seeds = random.Random(seed), count(seed * 100_000 + 1)
    first, again = deque(a_round(wanted, rng, seeds)), deque[Session]()
    running: dict[Future[dict[str, Any]], Session] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while True:
            while len(running) < jobs and (first or time.monotonic() < end):
                if not first and not again:
                    again.extend(a_round(wanted, rng, seeds))
                session = _next_of(first or again, running.values())
                if session is None:
                    break
                running[pool.submit(run_session, *session)] = session
            if not running:
                return tally
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _tell(tally, running.pop(future), future.result())


def _next_of(left: deque[Session], running: Iterable[Session]) -> Session | None:
    """The first of them; one heavy session at a time, or a machine of two cores does nothing else."""
    is_one_heavy = any(ACTORS[actor].weight > _HEAVY for actor, _, _ in running)
    for session in left:
        if not is_one_heavy or ACTORS[session[0]].weight <= _HEAVY:
            left.remove(session)
            return session
    return None


def _tell(tally: Tally, session: Session, report: dict[str, Any]) -> None:
    actor, seed, faults = session
    tally.add(report)
    struck = sum(report["struck"].values())
    print(
        f"{actor:>16} {seed:>9}: {struck:>2} of {len(faults)} faults, {report['written']} operations "
        f"written, {report['refused']} not, {report['unknown']} unknown, {report['seconds']} s: "
        f"{'FAILED' if report['problems'] else 'ok'}",
        flush=True,
    )
    if report["problems"]:
        again = f"python -m tests.trials.hunts.session {actor} {seed} {','.join(faults)}"
        tally.failures.append(f"{again}\n    " + "\n    ".join(report["problems"]))
        print(f"  again: {again}\n  files: {report['folder']}", flush=True)
        print("\n".join(f"  {problem}" for problem in report["problems"]), flush=True)


def _line(tally: Tally, seed: int, minutes: float) -> str:
    sums = tally.sums
    return (
        f"seed {seed}, {minutes:g} minutes: {tally.sessions:,} sessions, {sum(tally.cells.values()):,} "
        f"faults, {sums['written']:,} operations acknowledged ({sums['records']:,} records), "
        f"{sums['refused']:,} not written, {sums['unknown']:,} unknown; "
        f"{len(tally.failures)} sessions failed"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.trials.hunts.gauntlet", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--actor", default="", help="names, separated by commas; all by default")
    parser.add_argument("--fault", default="", help="names, separated by commas; all by default")
    parser.add_argument("--page", action="store_true", help="write docs/internals/gauntlet.md")
    # A broker has one topic `shop` for all.
    jobs = 1 if cluster.BROKER else max(os.cpu_count() or 1, 2)
    parser.add_argument("--jobs", type=int, default=jobs)
    asked = parser.parse_args(arguments)
    actors = asked.actor.split(",") if asked.actor else list(ACTORS)
    faults = asked.fault.split(",") if asked.fault else list(FAULTS)
    if unknown := {*actors} - {*ACTORS} | {*faults} - {*FAULTS}:
        known = f"actors: {', '.join(ACTORS)}; faults: {', '.join(FAULTS)}"
        parser.error(f"got {', '.join(sorted(unknown))}, expected some of {known}")
    for name in [name for name in actors if ACTORS[name].left_out()]:
        print(f"{name} is left out: {ACTORS[name].left_out()}", flush=True)
        actors.remove(name)
    wanted = cells(actors, faults)
    if not wanted:
        parser.error("none of these cells can occur; docs/internals/gauntlet.md says why")
    tally = run(wanted, asked.seed, asked.minutes, asked.jobs)
    print(f"{len(tally.cells)} of {len(wanted)} cells, {_line(tally, asked.seed, asked.minutes)}")
    for actor, fault in sorted({*wanted} - {*tally.cells}):
        print(f"not struck: {fault} at {actor}")
    if asked.page:
        page.write(tally.cells, _line(tally, asked.seed, asked.minutes), tally.failures)
    return 1 if tally.failures or len(tally.cells) < len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
