"""A session: one actor, its world begun once, faults struck one after another, and the judge at the end.

`python -m tests.trials.hunts.session ACTOR SEED FAULT,FAULT…` runs one and prints its report as a line of
JSON.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import eosdb
from tests.trials.hunts import judge
from tests.trials.hunts.actors import ACTORS
from tests.trials.hunts.actors.actor import Actor
from tests.trials.hunts.faults import FAULTS
from tests.trials.hunts.faults.fault import Fault, cannot
from tests.trials.hunts.world import HuntError, World, names_of

_STEPS: Final = 2
"""So much progress shows that the actor works."""
_STRIKES: Final = 5
"""So often a fault is tried that does not happen."""
_LOOK_EVERY_S: Final = 0.5


@dataclass(slots=True)
class Report:
    """What came of a session."""

    actor: str
    seed: int
    struck: dict[str, int] = field(default_factory=dict)
    written: int = 0
    refused: int = 0
    unknown: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    folder: str = ""
    """Where its files are kept, if something was wrong."""


class Onlooker:
    """Looks at the file again and again while everything works: a reader sees no part of a transaction."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.problems: list[str] = []
        self._world, self._actor, self._ended = world, actor, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Onlooker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                with self._world.looking:
                    self.problems += judge.look(self._world) + self._actor.look(self._world)
            except Exception as error:
                self.problems.append(f"the file cannot be read: {error!r}")
            if self.problems:
                return


def run(actor: Actor, faults: list[Fault], seed: int, folder: Path) -> Report:
    """Run a session. Problems are in the report; nothing is raised for them."""
    report, began = Report(actor.name, seed), time.monotonic()
    with World(folder, seed, is_adopted=actor.is_adopted) as world:
        try:
            with Onlooker(world, actor) as onlooker:
                actor.begin(world)
                _goes_on(world, actor, "at the beginning", frozenset())
                world.names = names_of(folder)
                ends: frozenset[str] = frozenset()
                for fault in faults:
                    _strike(world, actor, fault, ends, report)
                    ends = fault.ends
                    if onlooker.problems:
                        raise HuntError(f"{fault.name}: {onlooker.problems}")
                _end(world, actor, ends)
            report.problems += onlooker.problems
            report.problems += judge.verdict(world, actor)
        except (HuntError, eosdb.EosdbError) as error:
            report.problems.append(str(error))
        except Exception:
            report.problems.append(f"the harness: {traceback.format_exc()}")
        world.ledgers.refresh()
        operations = world.ledgers.operations.values()
        report.written = sum(op.outcome == "written" for op in operations)
        report.refused = sum(op.outcome == "not written" for op in operations)
        report.unknown = sum(op.outcome == "unknown" for op in operations)
        report.records = sum(len(op.places) for op in operations if op.outcome == "written")
    report.seconds = round(time.monotonic() - began, 1)
    return report


def _strike(
    world: World, actor: Actor, fault: Fault, may_end: frozenset[str], report: Report
) -> None:
    """One cell: the actor goes on. It counts when the fault has truly happened; what never does is told by
    the gauntlet as a cell that was not struck. The roles that the fault before has ended may be seen to
    have ended only now, where another process made the progress."""
    time.sleep(world.rng.random() * 0.3)
    for _ in range(_STRIKES):
        has_happened = fault.strike(world, actor)
        world.orders.clear()
        if world.proxy is not None:
            world.proxy.clear()
            world.proxy.accept()
        _goes_on(world, actor, f"after {fault.name} {fault.what}", may_end | fault.ends)
        if has_happened:
            report.struck[fault.name] = report.struck.get(fault.name, 0) + 1
            return


def _goes_on(world: World, actor: Actor, when: str, may_end: frozenset[str]) -> None:
    """Raises HuntError when the actor makes no progress, or a process ends that had no reason to."""
    wanted = actor.progress(world) + _STEPS
    if actor.ends_on_error:
        may_end |= {"client"}

    def has_progressed() -> bool:
        for role in world.roles.values():
            if not role.is_up:
                if role.role not in may_end:
                    raise HuntError(f"{when}: {role.name} ended with {role.status}: {role.tail()}")
                role.start()
        return actor.progress(world) >= wanted

    world.until(has_progressed, f"{when}: progress", actor.patience_s)


def _end(world: World, actor: Actor, may_have_ended: frozenset[str]) -> None:
    """Clients first, then what they speak to."""
    for name in ("client", "other", "feeder"):
        if name in world.roles:
            world.roles[name].stop()
    actor.settle(world)
    if "server" in world.roles:
        world.roles["server"].stop()
    for name, role in world.roles.items():
        # One that has just begun, after the last fault, ends by the signal itself.
        if role.status not in (0, -signal.SIGTERM, None) and role.role not in may_have_ended:
            raise HuntError(f"{name} ended with {role.status} by SIGTERM: {role.tail()}")


def _end_all(*_: object) -> None:
    """What the session has started ends with it; a second SIGTERM does not keep it from that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("ended from outside")


def main() -> int:
    signal.signal(signal.SIGTERM, _end_all)
    actor, seed = ACTORS[sys.argv[1]], int(sys.argv[2])
    faults = [FAULTS[name] for name in sys.argv[3].split(",") if name]
    for fault in [fault for fault in faults if cannot(actor, fault)]:
        print(f"{fault.name} cannot occur: {cannot(actor, fault)}", file=sys.stderr)
        faults.remove(fault)
    folder = Path(tempfile.mkdtemp(prefix=f"hunt-{actor.name}-"))
    report = run(actor, faults, seed, folder)
    if report.problems:
        report.folder = str(folder)
    else:
        shutil.rmtree(folder)
    print(json.dumps(dataclasses.asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
