"""Progress reports of long-running work. A listener can stop the work with an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called from time to time with the amount done and the total, and at the end with two equal numbers.

If it raises an exception, the work is cancelled and rolled back. It must neither write to the database
nor close it.
"""

_EVENTS: Final = 100
"""Events between two calls; an event may stand for thousands of records."""


def silent(done: int, total: int) -> None:
    """A progress listener that ignores all calls."""


def reporting(
    items: Iterable[tuple[int, T]], on_progress: Progress, total: int
) -> Iterator[tuple[int, T]]:
    """Yield the items with their positions. Report every hundredth position after its item is processed."""
    on_progress(0, total)
    for position, item in items:
        yield position, item
        if position % _EVENTS == 0:
            on_progress(position, total)


class _Ended(BaseException):
    """Carries a listener's exception through the work's own error handlers."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def report_progress(on_progress: Progress | None, work: Callable[[Progress], T]) -> T:
    """Run `work` with a listener, and return its result. An exception of `on_progress` is raised
    unchanged, whatever errors `work` handles or translates."""
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
