"""Reads stored rows that may be damaged, or changed by another program.

A row that eosdb never writes (invalid JSON, an unknown name, text in place of a number) is reported as
damage, not as a bug.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from eosdb.errors import CorruptDatabaseError

P = ParamSpec("P")
T = TypeVar("T")


def reads(table: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that builds values from rows of `table`: its LookupError, TypeError, ValueError
    and AttributeError become CorruptDatabaseError."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise CorruptDatabaseError(
                    f"{table}: found a row that eosdb never writes ({error!r:.200}); run `eosdb verify` "
                    "and restore a backup"
                ) from error

        return reading

    return decorate


def parsed(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, also for JSON nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
