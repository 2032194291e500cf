"""How things are compared: side by side in one run, interleaved, in several rounds.

A machine's speed wanders from minute to minute, and a disk's does more so. So nobody is measured alone:
a round measures everybody once, one after the other, a ratio is taken within its round, and what counts is
the median of the ratios, not the ratio of medians.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

Contender = Callable[[Path], float]
"""Measures one thing once in an empty folder of its own."""

Round = Callable[[Path], Mapping[str, float]]
"""Measures everybody once, in an empty folder; found values by the names of their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was asked for on the command line."""

    quick: bool
    rounds: int
    folder: Path
    """Where files are made: on the disk that is to be measured."""
    cache: Path
    """Where large files are kept for the cases that only read them, or add little."""
    large_file: Path
    large_records: int
    large: bool = False
    """A million transactions where else some hundred thousand have to do, 50 million records for 10."""

    def size(self, full: int, quick: int) -> int:
        """How much of something to do."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is measured. `absent` is said when nothing was found for it."""

    name: str
    durable: str = ""
    unit: str = ""
    absent: str = "not measured"


@dataclass(frozen=True, slots=True)
class Target:
    """`ours` has to reach `bound` times `theirs`, or stay below it; `bound` itself without `theirs`.
    Without a bound the ratio is only told."""

    ours: str
    theirs: str | None
    bound: float | None
    at_least: bool = True

    def of(self, values: Mapping[str, float]) -> float | None:
        """The ratio in one round; None when one of the two was not measured."""
        ours = values.get(self.ours)
        theirs = 1.0 if self.theirs is None else values.get(self.theirs)
        return None if ours is None or theirs is None else ours / theirs

    def met(self, ratio: float) -> bool | None:
        if self.bound is None:
            return None
        return ratio >= self.bound if self.at_least else ratio <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rows that are measured together, and what is asked of them.

    `open` prepares what the rounds share; `rounds_max` holds where a value does not wander.
    """

    name: str
    title: str
    unit: str
    rows: Sequence[Row]
    targets: Sequence[Target] = ()
    open: Callable[[Settings], AbstractContextManager[Round]]
    rounds_max: int | None = None


@dataclass(slots=True)
class Result:
    """What the rounds of a case found."""

    case: Case
    rounds: list[Mapping[str, float]] = field(default_factory=list)
    error: str | None = None

    def median(self, row: str) -> float | None:
        found = [values[row] for values in self.rounds if row in values]
        return statistics.median(found) if found else None

    def ratios(self, target: Target) -> list[float]:
        """One for each round that has both sides, sorted."""
        found = (target.of(values) for values in self.rounds)
        return sorted(ratio for ratio in found if ratio is not None)


def run(case: Case, settings: Settings) -> Result:
    """All rounds of the case. An error ends the case, not the run: it is kept in the result."""
    result = Result(case)
    rounds = min(settings.rounds, case.rounds_max or settings.rounds)
    try:
        with case.open(settings) as one_round:
            for _ in range(rounds):
                with TemporaryDirectory(dir=settings.folder, prefix="bench-") as folder:
                    result.rounds.append(one_round(Path(folder)))
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}"
    return result


class NotMeasured(Exception):
    """A contender could not do it this time; the others go on."""


def side_by_side(contenders: Mapping[str, Contender | None]) -> Round:
    """A round that lets each contender run once, in an empty folder of its own. None is left out."""

    def one_round(folder: Path) -> Mapping[str, float]:
        found = {}
        for number, (name, contender) in enumerate(contenders.items()):
            if contender is not None:
                place = folder / str(number)
                place.mkdir()
                with suppress(NotMeasured):
                    found[name] = contender(place)
                shutil.rmtree(place)
        return found

    return one_round


def fileless(run: Callable[[], float]) -> Contender:
    """A contender that needs no folder."""
    return lambda _: run()


def plainly(
    contenders: Mapping[str, Contender | None],
) -> Callable[[Settings], AbstractContextManager[Round]]:
    """The `open` of a case whose rounds share nothing."""

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        yield side_by_side(contenders)

    return opened


def latencies_ms(calls: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The median time of each call in ms. They take turns, and who begins changes from turn to turn."""
    names = list(calls)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(times):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = perf_counter()
            calls[name]()
            found[name].append(perf_counter() - start)
    return {name: statistics.median(values) * 1000 for name, values in found.items()}


@dataclass(slots=True)
class Cost:
    """CPU time, and time on the wall, for one call in ms."""

    cpu: float = 0.0
    wall: float = 0.0


Turn = Callable[[], AbstractContextManager[Callable[[], object]]]
"""What somebody does when it is his turn: the context prepares, and cleans up; the call is measured."""


def calling(call: Callable[[], object]) -> Turn:
    """A turn that needs no preparation."""
    return lambda: nullcontext(call)


def costs(
    turns: Mapping[str, Turn],
    times: int,
    at_once: int,
    clocks: Mapping[str, Callable[[], float]] | None = None,
) -> dict[str, Cost]:
    """The mean cost of each one's call. They take turns of so many calls, and who begins changes.

    CPU time is that of all threads of this process, or what his own clock says.
    """
    names, found = list(turns), {name: Cost() for name in turns}
    for turn, done in enumerate(range(0, times, at_once)):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            cpu_s = (clocks or {}).get(name, process_time)
            with turns[name]() as call:
                cpu, wall = cpu_s(), perf_counter()
                for _ in range(min(at_once, times - done)):
                    call()
                found[name].wall += (perf_counter() - wall) * 1000 / times
                found[name].cpu += (cpu_s() - cpu) * 1000 / times
    return found
