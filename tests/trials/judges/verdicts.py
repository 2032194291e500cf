"""What is said of a judge: it passed, it failed, or it is not to be had on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class MissingError(Exception):
    """What the judge needs cannot be had here; the text says what."""


class FailedError(Exception):
    """The judge says no; the text says what was found and what was expected."""


class Outcome(Enum):
    """A judge that could not be asked has not passed."""

    PASSED = "passed"
    FAILED = "FAILED"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table."""

    judge: str
    version: str
    outcome: Outcome
    kills: int
    seconds: float
    text: str


def table(verdicts: Sequence[Verdict]) -> str:
    """As tests/trials/README.md has it."""
    lines = ["| judge | version | kills | result | time |", "| --- | --- | --- | --- | --- |"]
    lines += [_line(verdict) for verdict in verdicts]
    return "\n".join(lines)


def _line(it: Verdict) -> str:
    said = it.text.replace("\n", " ")
    return (
        f"| {it.judge} | {it.version} | {it.kills or '–'} "
        f"| {it.outcome.value}: {said} | {it.seconds:.0f} s |"
    )


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """0 when all passed, 1 when one failed, 2 when none failed and one is missing."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAILED in outcomes:
        return 1
    return 2 if Outcome.MISSING in outcomes else 0
