"""A program whose clock jumps by hours and days, forward and back: stores in every way there is.

`python -m tests.chaos.clock_worker FILE NAME COUNT`. What is acknowledged is a line of the file FILE.NAME.
Transactions that the clock ends are not acknowledged, nor is what else is refused.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from typing import Final

import eosdb
from eosdb.clock import SystemClock
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


def config() -> eosdb.BrokerConfig:
    """Housekeeping runs all the time, and must not delete what is counted."""
    return eosdb.BrokerConfig(
        log_retention_ms=-1,
        offsets_retention_minutes=2**31 - 1,
        log_retention_check_interval_ms=100,
    )


def main() -> None:
    path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rng = random.Random(name)
    acknowledged = os.open(f"{path}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with eosdb.connect(path, clock=JumpingClock(rng), config=config()) as db:
        worker = Worker(db, name, rng)
        for _ in range(count):
            with contextlib.suppress(eosdb.EosdbError):
                if done := worker.store():
                    os.write(acknowledged, f"{done}\n".encode())


if __name__ == "__main__":
    main()
