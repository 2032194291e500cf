"""The write lock of the file, held by others: a moment, and longer than `lock_timeout_ms`."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Final

import eosdb
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.faults.fault import Fault
from tests.trials.hunts.world import HuntError, World

_LONG_S: Final = 7.0
"""Longer than a request of most clients waits for its answer."""
LONGER_S: Final = 3.0
"""Than `lock_timeout_ms` of programs and server (working.CONFIG)."""
_TO_GET_IT_S: Final = 60.0
_ROWS: Final = 50


class HeldBySqlite(Fault):
    def __init__(self, name: str, seconds: tuple[float, ...]) -> None:
        self.name = name
        self.summary = f"another SQLite connection holds the write lock for {seconds[-1]:g} s"
        self._seconds = seconds

    def strike(self, world: World, actor: Actor) -> bool:
        path = world.rng.choice(actor.files(world))
        with closing(sqlite3.connect(path, timeout=_TO_GET_IT_S, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            time.sleep(world.rng.choice(self._seconds))
            holder.execute("ROLLBACK")
        return True


class OwnersRows(Fault):
    name = "rows-of-owner"
    summary = "another SQLite connection commits rows of its own table, which all stay"
    needs = frozenset({Need.OWNER})

    def strike(self, world: World, actor: Actor) -> bool:
        with closing(sqlite3.connect(world.path, timeout=_TO_GET_IT_S)) as owner:
            before = _count(owner)
            for number in range(before, before + _ROWS):
                with owner:
                    owner.execute("INSERT INTO stock VALUES (?)", (f"{number}",))
                time.sleep(world.rng.random() * 0.01)
            time.sleep(0.5)
            if (lost := before + _ROWS - _count(owner)) > 0:
                raise HuntError(f"{lost} of {_ROWS} rows of the owner are lost")
        return True


def _count(owner: sqlite3.Connection) -> int:
    (found,) = owner.execute("SELECT count(*) FROM stock").fetchone()
    return int(found)


class HeldByBlock(Fault):
    name = "lock-block"
    summary = "a user's `db.begin()` of another process holds the write lock for 3 s"

    def strike(self, world: World, actor: Actor) -> bool:
        path = world.rng.choice(actor.files(world))
        config = eosdb.BrokerConfig(lock_timeout_ms=60_000)
        with eosdb.connect(path, config=config) as db, db.begin():
            time.sleep(LONGER_S)
        return True


FAULTS: Final[list[Fault]] = [
    HeldBySqlite("lock-short", (0.01, 0.1, 0.5)),
    HeldBySqlite("lock-long", (_LONG_S,)),
    HeldByBlock(),
    OwnersRows(),
]
