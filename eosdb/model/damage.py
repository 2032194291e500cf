"""A stored row that is not as eosdb writes it is damage, not a bug: invalid JSON, an unknown name, text
in place of a number."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from eosdb.errors import CorruptDatabaseError

P = ParamSpec("P")
T = TypeVar("T")


def reads(table: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For a function that makes values from stored rows: what it cannot read raises
    CorruptDatabaseError."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise CorruptDatabaseError(
                    f"{table}: a row is not what eosdb writes ({error!r:.200}); see `eosdb verify`, and "
                    "restore a backup"
                ) from error

        return reading

    return decorate
