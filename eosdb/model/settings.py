"""Settings that there are not: what the message about them says, the same for every kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from eosdb.errors import ConfigError

T = TypeVar("T")


def checked_settings(kind: type[T], what: str, config: Mapping[str, Any]) -> T:
    """The settings of `what` as a value of their dataclass. Raises ConfigError for unknown names."""
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in config if name not in known]:
        raise ConfigError(unknown_text(what, unknown, known))
    return kind(**config)


def unknown_text(what: str, unknown: Iterable[str], known: Collection[str]) -> str:
    """Which names are unknown, what may have been meant by each, and which there are."""
    import difflib

    told = []
    for name in sorted(map(str, unknown)):
        for separators in ("._", "_."):  # Kafka's own names have dots; ours for topics have, too.
            alike = difflib.get_close_matches(name.lower().replace(*separators), known, 1)
            if alike:
                break
        told.append(f"{name!r}" + (f" (did you mean {alike[0]!r}?)" if alike else ""))
    return f"unknown {what} setting {', '.join(told)}; known are {', '.join(known)}"
