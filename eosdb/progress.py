"""Progress reports of long work, and how whoever listens to them can stop the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called now and then with what is done and what there is to do, at the end with two equal numbers.

What it raises ends the work and undoes it. It must neither write to nor close the database that works.
"""

_EVENTS: Final = 100
"""Between two calls; an event may bring thousands of records."""


def silent(done: int, total: int) -> None:
    """Nobody listens."""


def reporting(
    items: Iterable[tuple[int, T]], on_progress: Progress, total: int
) -> Iterator[tuple[int, T]]:
    """The items, each with its position; every hundredth position is reported once its item is done."""
    on_progress(0, total)
    for position, item in items:
        yield position, item
        if position % _EVENTS == 0:
            on_progress(position, total)


class _Ended(BaseException):
    """Takes what a listener raised past every handler of errors of the work itself."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def report_progress(on_progress: Progress | None, work: Callable[[Progress], T]) -> T:
    """The result of `work`, which reports to `on_progress`. What the latter raises is raised unchanged,
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
