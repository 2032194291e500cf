"""Cancels a task at each of its awaits, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from enum import Enum
from typing import Any, Final

import pytest

_TURNS = 4
"""How many turns of the loop are a little later."""


class When(Enum):
    """When a task is cancelled that waits."""

    AT_ONCE = 1
    A_LITTLE_LATER = 2
    """While a thread is at work for it, if that takes so long; or else at one of its next awaits."""
    ANSWERED = 3
    """It has been answered, and has not resumed."""
    OVER_AND_OVER = 4
    """At once, and again in every turn of the loop until the task has ended."""


ONCE: Final = (When.AT_ONCE, When.A_LITTLE_LATER, When.ANSWERED)
"""For scenarios whose own code awaits something at their end, which must come to its end."""


class _Watched:
    """Awaits a coroutine, and counts the times at which its task waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], at: Callable[[Any], None]) -> None:
        self._coroutine = coroutine
        self._at = at
        self.count = 0

    def __await__(self) -> Generator[Any, Any, None]:
        throw: BaseException | None = None
        while True:
            try:
                step = self._coroutine
                waits_for = step.send(None) if throw is None else step.throw(throw)
            except StopIteration:
                return
            self.count += 1
            self._at(waits_for)
            try:
                yield waits_for
                throw = None
            except BaseException as error:
                throw = error


async def cancelled_at(number: int, coroutine: Coroutine[Any, Any, None], when: When) -> bool:
    """Run the coroutine, and cancel it where it waits for the `number`th time. False if it does not wait so
    often."""
    loop = asyncio.get_running_loop()
    was_cancelled = False

    def cancel(*_: object) -> None:
        nonlocal was_cancelled
        was_cancelled |= task.cancel()

    def later(turns: int) -> None:
        if turns:
            loop.call_soon(later, turns - 1)
        else:
            cancel()

    def at(waits_for: Any) -> None:
        if watched.count != number:
            return
        if when is When.A_LITTLE_LATER:
            later(_TURNS)
        elif when is When.ANSWERED and waits_for is not None:
            waits_for.add_done_callback(cancel)  # Before the task's own.
            waits_for._asyncio_future_blocking = True
        else:
            loop.call_soon(insist if when is When.OVER_AND_OVER else cancel)

    def insist() -> None:
        if not task.done():
            cancel()
            loop.call_soon(insist)

    watched = _Watched(coroutine, at)

    async def main() -> None:
        await watched

    task = asyncio.create_task(main())
    await asyncio.wait({task})
    if was_cancelled:
        # A cancellation is never swallowed.
        with pytest.raises(asyncio.CancelledError):
            task.result()
    else:
        task.result()
    return was_cancelled


async def cancel_everywhere(
    scenario: Callable[[int], Coroutine[Any, Any, None]],
    check: Callable[[int], Awaitable[None]],
    ways: Iterable[When] = When,
) -> int:
    """Run scenario after scenario, each with a number of its own, cancel each at its next await in every
    way, and check what is left. Returns how many cancellations there were."""
    runs = cancellations = awaits = 0
    for when in ways:
        at, goes_on = 1, True
        while goes_on or at <= awaits:
            goes_on = await cancelled_at(at, scenario(runs), when)
            await check(runs)
            at, runs, cancellations = at + 1, runs + 1, cancellations + goes_on
        awaits = at - 2
    assert cancellations >= 2 * awaits
    return cancellations
