"""Setting names: checked with one error message for all kinds of settings, and shown by `help`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from eosdb.errors import ConfigError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def keywords_of(source: Callable[..., object]) -> Callable[[F], F]:
    """Decorator: `help` shows the keywords of `source`, with their defaults, in place of `**config`."""

    def decorated(function: F) -> F:
        own = inspect.signature(function)
        *before, _ = own.parameters.values()
        more = (
            each
            for each in inspect.signature(source).parameters.values()
            if each.kind is each.KEYWORD_ONLY and each.name not in own.parameters
        )
        function.__signature__ = own.replace(parameters=[*before, *more])  # type: ignore[attr-defined]
        return function

    return decorated


def checked_settings(kind: type[T], what: str, config: Mapping[str, Any]) -> T:
    """Build the settings dataclass of `what`. Raises ConfigError for unknown names."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in config if name not in names]:
        raise ConfigError(unknown_text(what, unknown, names))
    return kind(**config)


def check_by_name(what: str, given: tuple[object, ...]) -> None:
    """Raise ConfigError for settings that were given as an argument, such as a dict of them."""
    if given:
        kind = type(given[0]).__name__
        raise ConfigError(
            f"{what}: got an argument of type {kind}, expected settings by name: {what}(linger_ms=5), or "
            f"{what}(**settings) for a dict of them"
        )


def guess(name: str, names: Collection[str]) -> str:
    """Text for an error that guesses which of the names was meant; empty if none is like it."""
    import difflib

    alike = difflib.get_close_matches(name, names, 1)
    return f" (did you mean {alike[0]!r}?)" if alike else ""


def unknown_text(what: str, unknown: Iterable[str], names: Collection[str]) -> str:
    """An error text: the unknown names, what each may have been meant to be, and the names that exist."""
    told = []
    for name in sorted(map(str, unknown)):
        # Kafka's own names have dots; ours for topics have, too.
        spellings = (name.lower().replace(*separators) for separators in ("._", "_."))
        told.append(
            f"{name!r}" + next(filter(None, (guess(text, names) for text in spellings)), "")
        )
    return f"unknown {what} setting {', '.join(told)}; known are {', '.join(names)}"
