"""How long work tells how far it has come, and how whoever listens may end it."""

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


def told(
    items: Iterable[tuple[int, T]], on_progress: Progress, total: int
) -> Iterator[tuple[int, T]]:
    """The items, each with its position; every hundredth position is told when its item is dealt with."""
    on_progress(0, total)
    for position, item in items:
        yield position, item
        if position % _EVENTS == 0:
            on_progress(position, total)


class _Ended(BaseException):
    """Carries what a listener raised past everybody who deals with errors of the work itself."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def carried(on_progress: Progress | None, work: Callable[[Progress], T]) -> T:
    """The result of `work`, which tells `on_progress`. What the latter raises is raised as it is, whatever
    errors `work` handles or translates."""
    if on_progress is None:
        return work(silent)
    listener = on_progress

    def tell(done: int, total: int) -> None:
        try:
            listener(done, total)
        except Exception as error:
            raise _Ended(error) from error

    try:
        return work(tell)
    except _Ended as ended:
        error = ended.error
    raise error
