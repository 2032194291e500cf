"""Members of groups with tables of their own: the loop, alone and beside another copy, and one by hand."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import Final

import eosdb
from tests.integrations.relay.contents import Content
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.actors.clients import Group
from tests.trials.hunts.actors.relays import different, history, in_file, source_of
from tests.trials.hunts.programs.processing import BATCHES, MANY, OWN_TABLE, TABLE
from tests.trials.hunts.programs.working import FEEDER, TOPIC
from tests.trials.hunts.world import World

_ROWS: Final = f"SELECT part, place FROM {TABLE}"
_RECORDS: Final = (
    'SELECT partition, "offset", CAST(value AS TEXT) FROM committed_records WHERE topic = ?'
    ' ORDER BY partition, "offset"'
)
_RESULTS: Final = "SELECT count(*) FROM committed_records WHERE topic = ?"


class Process(Group):
    """Each record ends as one result and one row, with the group's position."""

    name = "process"
    summary = "`process` with own tables: a row and a result for each record"
    module = "processing"
    has = frozenset({Need.FORK, Need.OWN_FILE, Need.LONG_LIFE})
    is_adopted = True

    def begin(self, world: World) -> None:
        with eosdb.connect(world.path) as db, db.begin() as tx:
            tx.connection.exec_driver_sql(OWN_TABLE)
        world.add("feeder", world.program("writers", FEEDER))
        self.start(world, "client")

    def look(self, world: World) -> list[str]:
        """As many rows as results, at any instant."""
        both = f"SELECT (SELECT count(*) FROM {TABLE}), ({_RESULTS})"
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            if not connection.execute(
                "SELECT 1 FROM sqlite_schema WHERE name = ?", (TABLE,)
            ).fetchone():
                return []  # It has not begun.
            rows, results = connection.execute(both, (self.name,)).fetchone()
        return [] if rows == results else [f"{rows} rows beside {results} results"]

    def problems(self, world: World) -> list[str]:
        return super().problems(world) + self._rows_amiss(world)

    def _rows_amiss(self, world: World) -> list[str]:
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            rows = set(connection.execute(_ROWS))
            records = {(part, place) for part, place, _ in connection.execute(_RECORDS, (TOPIC,))}
        amiss = sorted(rows ^ (records | (rows & world.removed.keys())))
        return [f"rows and records differ in {amiss[:5]}"] if amiss else []


class ProcessInPair(Process):
    """What happens to the client makes it a zombie, or has the other copy take over."""

    name = "process-pair"
    summary = "two copies of `process` with own tables in one group, one of them under the faults"

    def begin(self, world: World) -> None:
        super().begin(world)
        world.add("other", world.program(self.module, self.name))


class ProcessInBatches(ProcessInPair):
    name = BATCHES
    summary = "two copies of `process` whose handler gets lists of records, with own tables"


class ProcessMany(ProcessInPair):
    """Its results are in order for each key."""

    name = MANY
    summary = "two copies of `process` with four workers each"

    def look(self, world: World) -> list[str]:
        return []

    def problems(self, world: World) -> list[str]:
        target = in_file(world.path, self.name)
        by_key = different(_by_key(source_of(world, target)), _by_key(target))
        return self.behind(world) + by_key


def _by_key(records: list[Content]) -> list[Content]:
    """Those of each key in their order; those without a key have none."""
    lanes = defaultdict[tuple[int, object], list[Content]](list)
    for record in records:
        lanes[record.partition, record.key].append(record)
    return [
        record
        for (_, key), lane in sorted(lanes.items(), key=repr)
        for record in (lane if key is not None else sorted(lane, key=repr))
    ]


class ByHand(Process):
    """Its rows are what it has read. Beside it a reader without a group writes down what it is given: from
    the beginning on without a gap, and nothing that is not committed."""

    name = "group"
    summary = "a member that stores rows and offsets in `db.begin()`, and a read_committed reader"
    module = "reading"

    def progress(self, world: World) -> int:
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
            return int(count)

    def look(self, world: World) -> list[str]:
        return []

    def problems(self, world: World) -> list[str]:
        problems, every = self.behind(world) + self._rows_amiss(world), history(world)
        for path in world.folder.glob("read.*.log"):
            given: defaultdict[int, list[list[object]]] = defaultdict(list)
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    partition, *record = json.loads(line)
                    given[partition].append(record)
            for partition, records in given.items():
                offsets = {record[0] for record in records}
                expected = [
                    [offset, None if it.value is None else it.value.decode()]
                    for (number, offset), it, is_removed in every
                    if number == partition and (not is_removed or offset in offsets)
                ]
                if records != expected[: len(records)]:
                    problems.append(
                        f"{path.name}: partition {partition} was read otherwise: {records[:9]}"
                    )
        return problems


ACTORS: Final[list[Actor]] = [
    Process(), ProcessInPair(), ProcessInBatches(), ProcessMany(), ByHand(),
]  # fmt: skip
