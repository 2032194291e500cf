"""How values are shown to people: bytes, times, ages, sizes. Pure."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Final

from eosdb.model.clock import format_time_ms
from eosdb.model.damage import parsed

SHORT: Final = 120
LONG: Final = 20_000
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Shown:
    """A key or value as text. `kind`: "text", "json", "hex" or "null"."""

    text: str
    kind: str
    left_out: int = 0
    """How many characters, or bytes of hex, are not shown."""


def shown(data: object, limit: int = SHORT, *, pretty: bool = False) -> Shown:
    """A stored key, value or header. JSON is laid out in lines when `pretty`."""
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
    """Text whose control characters, marks of direction and broken characters are written as escapes, so
    that no name can pretend to be another; everything else as it is."""
    if not isinstance(value, str) or type(value) is not str or value.isprintable():
        return value
    return "".join(
        c if c in "\n\t" or unicodedata.category(c)[0] != "C" else ascii(c)[1:-1] for c in value
    )


def moment(epoch_ms: int | None) -> str:
    """ISO 8601 in UTC; "–" for none."""
    return "–" if epoch_ms is None or epoch_ms < 0 else format_time_ms(epoch_ms)


def duration(ms: float) -> str:
    """The two largest units: "2 h 5 min"; milliseconds below a second."""
    if ms < 1_000:
        return f"{max(ms, 0):.0f} ms"
    left = int(ms / 1000)
    parts: list[str] = []
    for seconds, unit in _STEPS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def size(count: float) -> str:
    """Bytes in binary units."""
    sign, count = ("−" if count < 0 else ""), abs(count)
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return (
        f"{sign}{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{sign}{count:.1f} {unit}"
    )


def number(count: float | None) -> str:
    """With thin separators; "–" for none."""
    if count is None:
        return "–"
    if isinstance(count, float) and abs(count) < 10 and count != int(count):
        return f"{count:.1f}"
    return f"{count:,.0f}".replace(",", "\u202f")
