"""Progress of long-running commands on stderr: a bar with its pace and the time left, on a terminal alone.

A log, a pipe and `--quiet` get nothing, so that a line on stderr always is a message.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from eosdb.model.clock import SystemClock
from eosdb.model.words import duration

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[..., None]
"""Takes the amount done, the total (None if unknown), and the number of units if amounts are in bytes."""
QUIET: Final = "eosdb.quiet"
"""The key in `Context.meta` that --quiet sets."""


@dataclass(slots=True)
class Pace:
    """The text beside a bar. The rate is the mean since the first report, so it excludes preparations such
    as the check of the file's structure."""

    unit: str
    began: tuple[int, int, int] | None = None
    """Amount, units and time (ms) of the first report, or of the last one without progress."""

    def text(self, now_ms: int, done: int, total: int | None, count: int | None = None) -> str:
        """Such as `1,200 records (30 %), 240 a second, 12 s left`."""
        units = done if count is None else count
        if self.began is None or (done, units) == self.began[:2]:
            self.began = done, units, now_ms
        first, before, began_ms = self.began
        elapsed_ms = max(now_ms - began_ms, 1)
        # A file that grows while it is read can exceed its first size.
        share = f" ({100 * min(done, total) // total} %)" if total else ""
        pace = f"{units:,} {self.unit}{share}, {(units - before) * 1000 // elapsed_ms:,} a second"
        if total is None or done <= first:
            return pace
        left_ms = max(total - done, 0) * elapsed_ms // (done - first)
        return f"{pace}, {duration(-(-left_ms // 1000) * 1000)} left"


@contextlib.contextmanager
def progress(doing: str, unit: str = "") -> Iterator[Report]:
    """Show the progress of the work inside the block. Work that reports nothing shows the time it takes."""
    console = _console()
    if console is None:
        yield lambda done, total, count=None: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    status = TextColumn("{task.fields[status]}", markup=False)
    with Progress(text, BarColumn(), status, TimeElapsedColumn(), console=console) as bar:
        task, pace, clock = bar.add_task(doing, total=None, status=""), Pace(unit), SystemClock()

        def report(done: int, total: int | None, count: int | None = None) -> None:
            shown = pace.text(clock.monotonic_ms(), done, total, count)
            bar.update(task, completed=done, total=total, status=shown)

        yield report


def _console() -> Console | None:
    """The terminal that stderr is connected to, if it can redraw a bar and --quiet was not given."""
    context = click.get_current_context(silent=True)
    if (context and QUIET in context.meta) or sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_interactive else None
