"""Progress reports of long-running work, and how their listener can stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called now and then with the amount done and the total, and at the end with two equal numbers.

An exception it raises ends the work and undoes it. It must neither write to nor close the database.
"""

_EVENTS: Final = 100
"""Between two calls; an event may bring thousands of records."""


def silent(done: int, total: int) -> None:
    """Nobody listens."""


def reporting(
    items: Iterable[tuple[int, T]], on_progress: Progress, total: int
) -> Iterator[tuple[int, T]]:
    """Yields the items with their positions; reports every hundredth position once its item is done."""
    on_progress(0, total)
    for position, item in items:
        yield position, item
        if position % _EVENTS == 0:
            on_progress(position, total)


class _Ended(BaseException):
    """Carries a listener's exception past the work's own error handlers."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def report_progress(on_progress: Progress | None, work: Callable[[Progress], T]) -> T:
    """The result of `work`, which reports to `on_progress`. An exception of the latter is raised unchanged,
    whatever errors `work` handles or translates."""
    if on_progress is None:
        return work(silent)
    listener = on_progress

    def report(done: int, total: int) -> None:
        try:
            listener(done, total)
        except Exception as error:
            raise _Ended(error) from error

    try:
        return work(report)
    except _Ended as ended:
        error = ended.error
    raise error
