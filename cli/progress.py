"""Progress of long-running commands on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import eosdb
from eosdb.model.words import duration

from . import output

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_MS = 5_000
_BAR_EVERY_MS = 100

Show = Callable[["Reporter"], object]


class Reporter:
    """Receives the amount done and the total, and shows them periodically.

    The rate is the mean since the first progress, so it excludes preparations such as the check of the
    file's structure.
    """

    def __init__(
        self, clock: eosdb.Clock, unit: str, every_ms: int, show: Show, *, also_at_the_end: bool
    ) -> None:
        self._also_at_the_end = also_at_the_end
        self._clock = clock
        self._unit = unit
        self._every_ms = every_ms
        self._show = show
        self._shown_ms = self._began_ms = self._now_ms = clock.monotonic_ms()
        self._began: tuple[int, int] | None = None
        self.done = 0
        self.total: int | None = None
        self._count: int | None = None

    def __call__(self, done: int, total: int | None, count: int | None = None) -> None:
        """`count` is the number of units if `done` counts something else; `total` is None if unknown."""
        self.done, self.total, self._count = done, total, count
        self._now_ms = self._clock.monotonic_ms()
        if self._began is None or (done, self._units) == self._began:
            self._began, self._began_ms = (done, self._units), self._now_ms
        at_the_end = self._also_at_the_end and done == total
        if self._now_ms - self._shown_ms >= self._every_ms or at_the_end:
            self._shown_ms = self._now_ms
            self._show(self)

    @property
    def _units(self) -> int:
        return self.done if self._count is None else self._count

    def amount(self, *, with_total: bool) -> str:
        """Such as `12 of 40 events`, or `12 events`."""
        has_total = with_total and self._count is None and self.total is not None
        return f"{self._units:,}{f' of {self.total:,}' if has_total else ''} {self._unit}"

    def share(self) -> str:
        """Such as ` (30 %)`; empty without a total."""
        if not self.total:
            return ""
        # A file that grows while it is read can exceed its first size.
        return f" ({100 * min(self.done, self.total) // self.total} %)"

    def pace(self) -> str:
        """Such as `240,000 a second, 12 s left`."""
        assert self._began is not None
        done, units = self._began
        elapsed_ms = max(self._now_ms - self._began_ms, 1)
        text = f"{(self._units - units) * 1000 // elapsed_ms:,} a second"
        if self.total is None or self.done <= done:
            return text
        left_ms = max(self.total - self.done, 0) * elapsed_ms // (self.done - done)
        return f"{text}, {duration(-(-left_ms // 1000) * 1000)} left"


@contextlib.contextmanager
def progress(
    clock: eosdb.Clock, description: str, unit: str, *, on_terminal: str | None = None
) -> Iterator[Reporter]:
    """Show the progress of the work inside the block; `on_terminal` is a shorter description."""
    console = _console()
    if console is None:
        yield Reporter(clock, unit, _LINE_EVERY_MS, _lines(description), also_at_the_end=False)
        return
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
    ) as bar:
        task = bar.add_task(on_terminal or description, total=None, status="")

        def show(now: Reporter) -> None:
            status = f"{now.amount(with_total=False)}{now.share()}, {now.pace()}"
            bar.update(task, completed=now.done, total=now.total, status=status)

        yield Reporter(clock, unit, _BAR_EVERY_MS, show, also_at_the_end=True)


def _lines(description: str) -> Show:
    def show(now: Reporter) -> None:
        output.line(
            f"{description}: {now.amount(with_total=True)}{now.share()}, {now.pace()}", err=True
        )

    return show


def _console() -> Console | None:
    """The terminal that stderr is connected to, if it can redraw a bar."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_interactive else None
