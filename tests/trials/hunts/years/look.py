"""What there is in the file on the first of a month, what the month has cost, and whether it grows."""

from __future__ import annotations

import os
import sqlite3
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.trials.hunts.years.shop import OWN_TABLE, Shop

_FLAT: Final = 1.1
_SLACK: Final = {"rows": 30.0, "MB": 1.1, "ms": 3.0, "us": 5.0, "RSS": 8.0}
"""By so much more is no growth, in the unit in which a name ends. Free pages come and go within 1 MiB."""
_FEWEST: Final = 3
_SHOWN: Final = (
    "file MB",
    "free MB",
    "journal rows",
    "records rows",
    "send us",
    "poll us",
    "open ms",
)
_SHOWN_LAST: Final = ("verify ms", "process RSS")


@dataclass(frozen=True, slots=True)
class Look:
    """Figures by name; a name ends with its unit."""

    day: str
    transactions: int
    figures: dict[str, float]

    @classmethod
    def at(cls, shop: Shop, day: str, verify_s: float) -> Self:
        """Of a file that has just been opened, and of the time since the look before."""
        figures = _of_file(shop.path)
        for what, unit, ns in (("send", "us", 1e3), ("poll", "us", 1e3), ("open", "ms", 1e6)):
            figures[f"{what} {unit}"] = shop.cost_ns[what] / max(shop.count[what], 1) / ns
        shop.cost_ns.clear()
        shop.count.clear()
        figures["verify ms"] = verify_s * 1e3
        figures["process RSS"] = _rss_mb()
        return cls(day, shop.ledger.done["transactions"], figures)

    @staticmethod
    def heading() -> str:
        names = ("transactions", *_SHOWN, *_SHOWN_LAST, "other rows")
        return f"{'day':10}" + "".join(f"{name:>14}" for name in names)

    def __str__(self) -> str:
        figures = self.figures
        others = sum(v for k, v in figures.items() if k.endswith("rows") and k not in _SHOWN)
        shown = [f"{figures[name]:14,.1f}" for name in (*_SHOWN, *_SHOWN_LAST)]
        return f"{self.day:10}{self.transactions:14,}{''.join(shown)}{others:14,.0f}"


def _of_file(path: Path) -> dict[str, float]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        ((free,),) = file.execute(
            "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
        )
        tables = [
            name
            for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_") and name != OWN_TABLE
        ]
        rows = {
            f"{table.removeprefix('eosdb_')} rows": float(
                file.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            )
            for table in sorted(tables)
        }
    wal = path.with_name(path.name + "-wal")
    return {
        "file MB": path.stat().st_size / 1e6,
        "WAL MB": wal.stat().st_size / 1e6 if wal.exists() else 0.0,
        "free MB": free / 1e6,
        **rows,
    }


def _rss_mb() -> float:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def grown(looks: Sequence[Look]) -> list[str]:
    """What has more in the last half of the looks than in the quarter before; each a sentence."""
    half, quarter = len(looks) // 2, len(looks) // 4
    before, after = looks[quarter:half], looks[half:]
    if len(before) < _FEWEST:
        return []
    found = []
    for name in looks[-1].figures:
        was, now = (
            statistics.median([look.figures.get(name, 0.0) for look in part])
            for part in (before, after)
        )
        if now > was * _FLAT and now - was > _SLACK[name.split()[-1]]:
            found.append(f"{name}: {was:,.1f} before the half, {now:,.1f} after it")
    return found
