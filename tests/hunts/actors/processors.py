"""The loop with tables of its own: alone, and beside another copy that takes over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

import eosdb
from tests.hunts.actors.actor import Actor, Copier, Need
from tests.hunts.actors.clients import Group
from tests.hunts.programs.processing import OWN_TABLE, RESULTS, TABLE
from tests.hunts.programs.working import PARTITIONS, TOPIC
from tests.hunts.world import World

_ROWS: Final = f"SELECT part, place FROM {TABLE}"
_RESULTS: Final = "SELECT count(*) FROM committed_records WHERE topic = ?"


class Process(Group):
    """Each record ends as one result and one row, with the group's position."""

    name = "process"
    summary = "`process` with own tables: a row and a result for each record"
    module = "processing"
    has = frozenset({Need.FORK, Need.OWN_FILE, Need.LONG_LIFE})
    is_adopted = True

    def begin(self, world: World) -> None:
        with eosdb.connect(world.path) as db:
            db.admin.create_topic(RESULTS, PARTITIONS, {"retention.ms": "-1"})
            with db.begin() as tx:
                tx.connection.exec_driver_sql(OWN_TABLE)
        Copier.begin(self, world)

    def look(self, world: World) -> list[str]:
        """As many rows as results, at any instant."""
        both = f"SELECT (SELECT count(*) FROM {TABLE}), ({_RESULTS})"
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            if not connection.execute(
                "SELECT 1 FROM sqlite_schema WHERE name = ?", (TABLE,)
            ).fetchone():
                return []  # It has not begun.
            rows, results = connection.execute(both, (RESULTS,)).fetchone()
        return [] if rows == results else [f"{rows} rows beside {results} results"]

    def problems(self, world: World) -> list[str]:
        expected = 'SELECT partition, "offset" FROM committed_records WHERE topic = ?'
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            rows = set(connection.execute(_ROWS))
            sources = set(connection.execute(expected, (TOPIC,)))
        problems = super().problems(world)
        if rows != sources:
            problems.append(f"rows and records differ in {sorted(rows ^ sources)[:5]}")
        return problems


class ProcessInPair(Process):
    """What happens to the client makes it a zombie, or has the other copy take over."""

    name = "process-pair"
    summary = "two copies of `process` with own tables in one group, one of them under the faults"

    def begin(self, world: World) -> None:
        super().begin(world)
        world.add("other", world.program(self.module, self.name))


ACTORS: Final[list[Actor]] = [Process(), ProcessInPair()]
