"""Runs checks, and writes down what came of them as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tests.conformance.check import Check
from tests.conformance.double import Differs, Double, NotReachable
from tests.conformance.systems import System

YES: Final = "yes"
NO: Final = "no"
NOT_REACHABLE: Final = "n/a"

_INTRODUCTION: Final = """# Conformance sheet

What Kafka promises about exactly-once, asked of eosdb and of three test doubles, by running it: `yes`, it
does what Kafka does; `no`, it does not (what was seen instead stands below); `n/a`, its API offers no way
to ask. To repeat it: `python -m scripts.make_conformance`.

| system | how it was asked |
| --- | --- |
| eosdb | its own clients, in the process |
| eosdb over the wire | confluent-kafka and single requests, to `eosdb serve`, killed by SIGKILL |
| kfake | the same, to franz-go's fake cluster, its data on disk and synced |
| librdkafka mock | the same, to the mock cluster inside confluent-kafka |
| mockafka-py | its own classes, in the process |"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One check's outcome; `seen` says what was there instead of a yes."""

    outcome: str
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One check's outcomes, in the order of the systems."""

    check: Check
    cells: list[Cell]


def run(check: Check, double: Double) -> Cell:
    """Ask, and close the double. What nobody expected is a no, with the error's name."""
    try:
        check.ask(double)
    except NotReachable as error:
        return Cell(NOT_REACHABLE, str(error))
    except Differs as error:
        return Cell(NO, str(error))
    except Exception as error:
        return Cell(NO, f"unexpected error: {double.error_name(error)}")
    finally:
        double.close()
    return Cell(YES)


def run_all(checks: Sequence[Check], systems: Sequence[System]) -> list[Row]:
    """One system's checks one after the other, the systems side by side."""

    def column(system: System) -> list[Cell]:
        return [run(check, system.make()) for check in checks]

    with ThreadPoolExecutor(len(systems)) as pool:
        columns = list(pool.map(column, systems))
    return [Row(check, cells) for check, *cells in zip(checks, *columns, strict=True)]


def document(rows: Sequence[Row], systems: Sequence[System]) -> str:
    """The whole page."""
    versions = list(dict.fromkeys(text for system in systems for text in system.versions()))
    parts = [_INTRODUCTION, f"eosdb is that of this commit. The others: {', '.join(versions)}."]
    answers = [[row.cells[index].outcome for row in rows] for index in range(len(systems))]
    right = [index for index, column in enumerate(answers) if set(column) == {YES}]
    others = [index for index in range(len(systems)) if index not in right]
    if right:
        labels = " and ".join(systems[index].label for index in right)
        parts.append(f"{labels} say yes to all ({len(rows)} of {len(rows)}); the others:")
    parts.append("\n".join(_table(rows, systems, others)))
    if seen := list(_seen(rows, systems)):
        parts += ["## What was seen instead of a yes", "\n".join(seen)]
    if unreachable := list(_unreachable(rows, systems)):
        parts += ["## What cannot be asked", "\n".join(unreachable)]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], systems: Sequence[System], columns: Sequence[int]) -> Iterator[str]:
    yield _line("check", "Kafka's rule", *(systems[index].label for index in columns))
    yield _line(*["---"] * (len(columns) + 2))
    for number, row in enumerate(rows, start=1):
        outcomes = (row.cells[index].outcome for index in columns)
        yield _line(f"{number}. {row.check.title}", row.check.rule, *outcomes)
    totals = (_total([row.cells[index] for row in rows]) for index in columns)
    yield _line(f"**Total of {len(rows)}**", "", *totals)


def _total(cells: Sequence[Cell]) -> str:
    outcomes = [cell.outcome for cell in cells]
    counts = [f"{outcomes.count(name)} {name}" for name in (YES, NO, NOT_REACHABLE)]
    return f"**{', '.join(count for count in counts if not count.startswith('0 '))}**"


def _seen(rows: Sequence[Row], systems: Sequence[System]) -> Iterator[str]:
    """One line for each thing seen instead, with the systems and the numbers of the checks."""
    checks: dict[str, dict[str, list[str]]] = {}
    for index, system in enumerate(systems):
        for number, row in enumerate(rows, start=1):
            if (cell := row.cells[index]).outcome == NO:
                where = checks.setdefault(cell.seen, {})
                where.setdefault(system.label, []).append(str(number))
    for seen, where in checks.items():
        places = (f"{label} {', '.join(numbers)}" for label, numbers in where.items())
        yield f"- {seen}: {'; '.join(places)}"


def _unreachable(rows: Sequence[Row], systems: Sequence[System]) -> Iterator[str]:
    """One line for each system and reason, with the numbers of the checks."""
    checks: dict[tuple[str, str], list[str]] = {}
    for index, system in enumerate(systems):
        for number, row in enumerate(rows, start=1):
            cell = row.cells[index]
            if cell.outcome == NOT_REACHABLE:
                checks.setdefault((system.label, cell.seen), []).append(str(number))
    for (label, reason), numbers in checks.items():
        yield f"- {label}, {', '.join(numbers)}: {reason}."


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
