"""Checking setting names, with one error message for all kinds of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from eosdb.errors import ConfigError

T = TypeVar("T")


def checked_settings(kind: type[T], what: str, config: Mapping[str, Any]) -> T:
    """Build the settings dataclass of `what`. Raises ConfigError for unknown names."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in config if name not in names]:
        raise ConfigError(unknown_text(what, unknown, names))
    return kind(**config)


def unknown_text(what: str, unknown: Iterable[str], names: Collection[str]) -> str:
    """An error text: the unknown names, what each may have been meant to be, and the names that exist."""
    import difflib

    told = []
    for name in sorted(map(str, unknown)):
        for separators in ("._", "_."):  # Kafka's own names have dots; ours for topics have, too.
            alike = difflib.get_close_matches(name.lower().replace(*separators), names, 1)
            if alike:
                break
        told.append(f"{name!r}" + (f" (did you mean {alike[0]!r}?)" if alike else ""))
    return f"unknown {what} setting {', '.join(told)}; known are {', '.join(names)}"
