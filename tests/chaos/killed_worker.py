"""A program that stores in every way there is, under circumstances of which `HOW` has the names.

`python -m tests.chaos.killed_worker FILE NAME COUNT HOW`. What is acknowledged is a line of the file
FILE.NAME. Transactions that the clock ends are not acknowledged, nor is what else is refused.

`python -m tests.chaos.killed_worker FILE` copies the WAL into the file, as another program does for
`external_checkpoints`, until the file FILE.stop exists.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

import eosdb
from eosdb.model.clock import SystemClock
from tests.chaos.disk_worker import Worker

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_JUMPS_MS: Final = (0, _MINUTE_MS, 120 * _MINUTE_MS, _DAY_MS, 10 * _DAY_MS)


class JumpingClock(SystemClock):
    """Every so often another time, within ten days of the right one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._every = rng.choice((3, 20, 200))
        self._asked = self._ahead_ms = 0

    def time_ms(self) -> int:
        self._asked += 1
        if self._asked % self._every == 0:
            self._ahead_ms = self._rng.choice((-1, 1)) * self._rng.choice(_JUMPS_MS)
        return super().time_ms() + self._ahead_ms


def config(*, external_checkpoints: bool = False) -> eosdb.BrokerConfig:
    """Housekeeping runs all the time, and must not delete what is counted."""
    return eosdb.BrokerConfig(
        log_retention_ms=-1,
        offsets_retention_minutes=2**31 - 1,
        log_retention_check_interval_ms=100,
        external_checkpoints=external_checkpoints,
    )


HOW: Final[dict[str, Callable[[random.Random], dict[str, Any]]]] = {
    "clocks that jump": lambda rng: {"clock": JumpingClock(rng), "config": config()},
    "external checkpoints": lambda _: {"config": config(external_checkpoints=True)},
}


def main() -> None:
    path, name, count, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    rng = random.Random(name)
    acknowledged = os.open(f"{path}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with eosdb.connect(path, **HOW[how](rng)) as db:
        worker = Worker(db, name, rng)
        for _ in range(count):
            with contextlib.suppress(eosdb.EosdbError):
                if done := worker.store():
                    os.write(acknowledged, f"{done}\n".encode())


def checkpoints() -> None:
    """With a snapshot between two of them, as Litestream has it, so that no writer begins the WAL anew."""
    path = sys.argv[1]
    connection = sqlite3.connect(path, isolation_level=None, timeout=0.1)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    for mode in cycle(("PASSIVE", "RESTART", "TRUNCATE")):
        if os.path.exists(f"{path}.stop"):
            return
        with contextlib.suppress(sqlite3.OperationalError):  # Others write, or read.
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM journal").fetchone()
        connection.rollback()


if __name__ == "__main__":
    main() if len(sys.argv) > 2 else checkpoints()
