"""How stored values and times are shown on the page. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from eosdb.model.clock import format_time_ms
from eosdb.model.damage import parsed
from eosdb.model.words import printable

SHORT: Final = 120
LONG: Final = 20_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or value as text. `kind` is "text", "json", "hex" or "null"."""

    text: str
    kind: str
    left_out: int = 0
    """The number of omitted characters, or bytes if the kind is hex."""


def shown(data: object, limit: int = SHORT, *, pretty: bool = False) -> Shown:
    """Convert a stored key, value or header. `pretty` indents JSON."""
    if data is None:
        return Shown("null", "null")
    if isinstance(data, bytes):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Shown(data[: limit // 3].hex(" "), "hex", max(len(data) - limit // 3, 0))
    else:
        text = str(data)
    kind = "text"
    if text[:1] in ("{", "["):
        try:
            content = parsed(text)
        except ValueError:
            pass
        else:
            kind = "json"
            text = json.dumps(content, indent=2, ensure_ascii=False) if pretty else text
    return Shown(text[:limit], kind, max(len(text) - limit, 0))


def visible(value: object) -> object:
    """`printable` text, with its line breaks; other values, and markup, as they are."""
    return printable(value, keep="\n\t") if isinstance(value, str) and type(value) is str else value


def moment(epoch_ms: int | None) -> str:
    """Format a time as ISO 8601 in UTC; "–" for none."""
    return "–" if epoch_ms is None or epoch_ms < 0 else format_time_ms(epoch_ms)
