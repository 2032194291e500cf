"""Two years in an hour: a shop on one file, with the clock moved.

    python -m tests.trials.hunts.years [--days 730] [--per-day 1000] [--full 200000] [--hours 1]
        [--folder PATH]

The clock keeps its pace, so whatever time makes due happens as often as in two years; orders are thinned
to `--per-day`, but for two days (the last Friday of November), which have `--full` of them. On the first
of each month the file is verified, backed up, compared with the ledger and measured. At the end: was what
was acknowledged there once, as long as it is to be kept, has what was to expire done so, and is everything
flat? The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

import eosdb
from tests.trials.hunts.years.calendar import DAY_MS, HOUR_MS, Calendar
from tests.trials.hunts.years.look import Look, grown
from tests.trials.hunts.years.shop import Shop

START: Final = date(2027, 1, 1)
ZONES: Final = ("Europe/Berlin", "America/St_Johns")
"""Where the machine stands, in the first half and in the second one: nothing should depend on it."""
_TURNS: Final = {(3, 28): -1, (5, 2): 1, (10, 31): -1, (12, 5): 1}
"""Days on which the clock is set back by an hour, or forward again."""

_MOST: Final = 20
"""So many problems are told."""


class Years:
    """The days, one after the other."""

    def __init__(self, path: Path, asked: argparse.Namespace) -> None:
        self._calendar = Calendar(asked.start)
        self._random = random.Random(asked.seed)
        self._asked = asked
        self.shop: Final = Shop(path, self._calendar, int(asked.hours * HOUR_MS), asked.seed)
        self.looks: Final[list[Look]] = []

    def run(self) -> None:
        days = self._asked.days
        for day in range(days):
            today = self._asked.start + timedelta(days=day)
            _move_to(ZONES[2 * day // days])
            if today.day == 1 and day > 0:
                self.look()
            self._one_day(today)
        self.look()

    def _one_day(self, today: date) -> None:
        begin_ms = self._calendar.time_ms()
        orders = self._asked.full if _is_busy(today) else self._asked.per_day
        orders += self._random.randrange(-orders // 10, orders // 10 + 1)
        turn = _TURNS.get((today.month, today.day), 0)
        for number in range(orders):
            self._calendar.advance_to(begin_ms + DAY_MS * number // orders)
            self.shop.order()
            self.shop.work()
            if turn and number == orders // 2:
                self._calendar.turn(turn * HOUR_MS)
                begin_ms += turn * HOUR_MS
        if today.weekday() == 6:
            self.shop.reopen(orderly=today.day > 14)
        self._calendar.advance_to(begin_ms + DAY_MS - turn * HOUR_MS)

    def look(self) -> None:
        """The first of a month: everything is compared, and measured."""
        shop, today = self.shop, self._calendar.today()
        shop.db.housekeeping()
        shop.ledger.compare(shop.db, self._calendar)
        began = perf_counter()
        report = shop.db.verify()
        took_s = perf_counter() - began
        shop.ledger.problems += [f"{today}: {problem}" for problem in report.problems]
        copy = shop.path.with_name("copy.db")
        copy.unlink(missing_ok=True)
        shop.db.backup(copy)
        with eosdb.connect(copy, read_only=True, clock=self._calendar, config=shop.config) as db:
            shop.ledger.compare(db, self._calendar)
        shop.reopen(orderly=True)
        self.looks.append(Look.at(shop, str(today), took_s))
        print(self.looks[-1], flush=True)


def _is_busy(today: date) -> bool:
    """The last Friday of November."""
    return today.month == 11 and today.day > 23 and today.weekday() == 4


def _move_to(zone: str) -> None:
    os.environ["TZ"] = zone
    time.tzset()


def _restore(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()


def judged(years: Years, cpu_s: float) -> int:
    """Say what was found. Returns the exit code."""
    shop = years.shop
    for name, number in sorted(shop.ledger.done.items()):
        print(f"{name}: {number:,}")
    for name, number in shop.rotations().items():
        print(f"producer ids of {name}: {number}")
    print(f"CPU: {cpu_s:,.0f} s")
    growth = grown(years.looks)
    for problem in (*shop.ledger.problems[:_MOST], *(f"GREW {name}" for name in growth)):
        print(problem)
    count = len(shop.ledger.problems)
    print(f"{count} problems, {len(growth)} figures grew" if count or growth else "all is well")
    return 1 if count or growth else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.hunts.years")
    parser.add_argument("--days", type=int, default=730)
    parser.add_argument("--start", type=date.fromisoformat, default=START)
    parser.add_argument("--per-day", type=int, default=1_000, help="orders on a day")
    parser.add_argument("--full", type=int, default=200_000, help="orders on a busy day")
    parser.add_argument(
        "--hours",
        type=float,
        default=1,
        help="between two rounds of housekeeping (eosdb: a twelfth)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(), help="the disk to be used")
    asked = parser.parse_args(arguments)
    began, zone = process_time(), os.environ.get("TZ")
    print(Look.heading(), flush=True)
    with TemporaryDirectory(dir=asked.folder, prefix="years-") as folder:
        years = Years(Path(folder, "shop.db"), asked)
        try:
            years.run()
        finally:
            _restore(zone)
        years.shop.db.close()
    return judged(years, process_time() - began)


if __name__ == "__main__":
    sys.exit(main())
