"""The report: first what was asked for and whether it holds, then everything that was found."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Result, Row, Settings, Target

_INTRODUCTION = """\
Made by `make bench`. Everybody in a table was measured in the same run, one after the other in each
round; a ratio is the median of the ratios within the rounds, in brackets the lowest and the highest.
Values are 100 bytes; eosdb and raw sqlite3 sync at every commit (`durability="full"`, `synchronous=FULL`).
Compare the ratios, not the rates: machines and their disks differ. More in [README.md](README.md)."""

_MET = {True: "yes", False: "**no**", None: "–"}


def markdown(
    results: Sequence[Result], machine: Mapping[str, str], settings: Settings, plots: Sequence[Path]
) -> str:
    lines = ["# Results", "", _INTRODUCTION, ""]
    if settings.quick:
        lines += [
            "**A quick run with small sizes: it shows that the benchmark runs, and nothing else.**",
            "",
        ]
    lines += _table(("rounds", str(settings.rounds)), machine.items(), align="| --- | --- |")
    lines += ["", "## Targets", ""]
    lines += _table(
        ("case", "what", "against", "ratio", "target", "met"),
        [
            (result.case.name, *_verdict(result, target))
            for result in results
            for target in result.case.targets
        ],
        align="| --- | --- | --- | ---: | ---: | --- |",
    )
    for result in results:
        lines += ["", f"## {result.case.title}", ""]
        if result.error is not None:
            lines += [f"**Failed: {result.error}**", ""]
        lines += [f"`{result.case.name}`, medians of {len(result.rounds)} rounds.", ""]
        lines += _table(
            ("who", "median", "unit", "durable"),
            [_row(result, row) for row in result.case.rows],
            align="| --- | ---: | --- | --- |",
        )
        for plot in plots:
            if plot.stem == result.case.name:
                lines += ["", f"![{result.case.title}](plots/{plot.name})"]
    return "\n".join(lines) + "\n"


def failed(results: Sequence[Result]) -> list[str]:
    """Cases that could not be measured. A missed target is a figure, not a failure."""
    return [f"{result.case.name}: {result.error}" for result in results if result.error is not None]


def _verdict(result: Result, target: Target) -> tuple[str, ...]:
    sign = "≥" if target.at_least else "≤"
    unit = "" if target.theirs is not None else f" {_unit(result, target.ours)}"
    wanted = (target.ours, target.theirs or "–")
    bound = "–" if target.bound is None else f"{sign} {target.bound:g}{unit}"
    ratios = result.ratios(target)
    if not ratios:
        missing = next(
            (
                row.absent
                for name in wanted
                for row in result.case.rows
                if row.name == name and result.median(name) is None
            ),
            "not measured",
        )
        return (*wanted, missing, bound, "–")
    ratio = statistics.median(ratios)
    spread = f" ({ratios[0]:.2f}–{ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return (*wanted, f"{ratio:.2f}{spread}{unit}", bound, _MET[target.met(ratio)])


def _row(result: Result, row: Row) -> tuple[str, ...]:
    median = result.median(row.name)
    unit = row.unit or result.case.unit
    if median is None:
        return (row.name, row.absent, unit, row.durable)
    return (row.name, f"{median:,.0f}" if median >= 1000 else f"{median:,.3g}", unit, row.durable)


def _unit(result: Result, name: str) -> str:
    row = next(row for row in result.case.rows if row.name == name)
    return row.unit or result.case.unit


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, align: str) -> list[str]:
    return [f"| {' | '.join(head)} |", align, *(f"| {' | '.join(row)} |" for row in rows)]
