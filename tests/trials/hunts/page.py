"""Writes docs/internals/gauntlet.md from a run of the gauntlet: the matrix, and why a cell is empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from string import ascii_lowercase
from typing import Final

from tests.programs import ended
from tests.tidy.tree import ROOT
from tests.trials.hunts.actors import ACTORS
from tests.trials.hunts.faults import FAULTS
from tests.trials.hunts.faults.fault import cannot

PAGE: Final = ROOT / "docs/internals/gauntlet.md"
_HEAD: Final = """\
# The gauntlet's matrix

How often each fault struck each actor. A letter says why a cell cannot occur. \
`python -m tests.trials.hunts.gauntlet --page` writes this page; [proof](../proof.md) explains it.
"""


def write(counts: Counter[tuple[str, str]], line: str, failures: Sequence[str]) -> None:
    """Write the page anew from the result of a run."""
    lines = [_HEAD, _heading(line), "", *_matrix(counts), *_failures(failures)]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")


def _heading(line: str) -> str:
    commit = ended(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True).stdout.strip()
    return f"Commit `{commit}`, {datetime.now(UTC):%Y-%m-%d}, {line}."


def _matrix(counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """A row for each fault, a column for each actor; a letter stands for the reason of an empty cell."""
    letters: dict[str, str] = {}
    yield "| fault | " + " | ".join(str(number) for number, _ in enumerate(ACTORS, 1)) + " |"
    yield "| --- |" + " --- |" * len(ACTORS)
    for fault in FAULTS.values():
        cells = []
        for actor in ACTORS.values():
            reason = cannot(actor, fault)
            if reason is None:
                cells.append(str(counts[actor.name, fault.name]))
            else:
                cells.append(letters.setdefault(reason, _letter(len(letters))))
        yield f"| `{fault.name}` | " + " | ".join(cells) + " |"
    yield ""
    yield "Actors:\n"
    for number, actor in enumerate(ACTORS.values(), 1):
        missing = f" Left out here: {actor.left_out()}." if actor.left_out() else ""
        yield f"{number}. `{actor.name}`: {actor.summary}.{missing}"
    yield ""
    yield "Faults:\n"
    yield from (f"- `{fault.name}`: {fault.summary}." for fault in FAULTS.values())
    yield ""
    yield "Cells that cannot occur, because of the actor:\n"
    yield from (f"- {letter}: {reason}." for reason, letter in letters.items())
    yield ""


def _letter(number: int) -> str:
    rounds, at = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[at] * (rounds + 1)


def _failures(failures: Sequence[str]) -> Iterator[str]:
    if failures:
        yield "Sessions that failed:\n"
        yield from (
            f"- `{failure.splitlines()[0]}`: {failure.splitlines()[1].strip()}"
            for failure in failures
        )
        yield ""
