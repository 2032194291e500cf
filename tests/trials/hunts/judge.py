"""The one judge: holds what there is against what the programs were told.

What was acknowledged is there once, in the order of its life, or was until a fault removed it; what is
"not written" is not there; what is unknown is there at most once, an atomic operation as a whole or not at
all. What was acknowledged between a backup and its restore counts as unknown. Read as SQL and as a
consumer, which must agree. Afterwards nothing is left: no process, no lock, no stray file.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import eosdb
from eosdb import TopicPartition
from eosdb.store.file.file_system import BESIDE
from eosdb.system.portable import OWNER
from tests.integrations.relay.contents import Content
from tests.readers import committed_values
from tests.trials.hunts.ledger import LEDGER, Operation, Place, Value
from tests.trials.hunts.programs.working import PARTITIONS, TOPIC
from tests.trials.hunts.world import World, names_of

if TYPE_CHECKING:
    from tests.trials.hunts.actors.actor import Actor  # Some of the actors ask the judge.

_AS_SQL: Final = (
    'SELECT partition, "offset", value FROM committed_records WHERE topic = ?'
    ' ORDER BY partition, "offset"'
)
_DECIDED: Final = (
    'SELECT partition, "offset", value FROM all_records'
    " WHERE topic = ? AND status = 'committed' AND control IS NULL"
    ' ORDER BY partition, "offset"'
)
"""Also behind the last stable offset: another's open transaction keeps readers of one partition waiting,
and lets those of another go on, as in Kafka."""
_ENDS: Final = ("", *BESIDE)
"""Of the files of a database."""
_MOST: Final = 12
"""So many problems are told."""
Log = dict[Place, list[bytes]]


def committed(
    path: Path,
    removed: Mapping[tuple[int, int], Content] = MappingProxyType({}),
    statement: str = _AS_SQL,
) -> Log:
    """The values of the topic, as SQL reads them at one instant, with those that were removed."""
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        rows = connection.execute(statement, (TOPIC,)).fetchall()
    there = {(partition, offset): value for partition, offset, value in rows}
    log: Log = defaultdict(list)
    values = {place: content.value for place, content in dict(removed).items()} | there
    for (partition, _), value in sorted(values.items()):
        if value is not None:
            log[Place(TOPIC, partition)].append(value)
    return log


def torn(
    path: Path, removed: Mapping[tuple[int, int], Content] = MappingProxyType({})
) -> list[str]:
    """Transactions of which a part is committed, at any instant."""
    return in_part(committed(path, removed, _DECIDED))


def in_part(log: Log) -> list[str]:
    """Transactions of which there is a part."""
    seen: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    counts: dict[tuple[str, int], int] = {}
    for values in log.values():
        for value in map(Value.of, values):
            if value.count:
                seen[value.life, value.number].add(value.index)
                counts[value.life, value.number] = value.count
    return [
        f"a reader sees {len(indexes)} of the {counts[name]} records of {name[0]}/{name[1]}"
        for name, indexes in seen.items()
        if len(indexes) != counts[name]
    ]


def misjudged(operations: Iterable[Operation], log: Log) -> list[str]:
    """Where the log is not what the programs were told."""
    problems, seen = [], _places(log)
    for operation in operations:
        there = [len(seen.get(value, ())) for value in operation.values()]
        name = f"{operation.life}/{operation.number}"
        if max(there) > 1:
            problems.append(f"{name} ({operation.outcome}) is there more than once: {there}")
        elif ("written", 0) in zip(operation.outcomes(), there, strict=True):
            problems.append(f"{name} was acknowledged, and is not there: {there}")
        elif ("not written", 1) in zip(operation.outcomes(), there, strict=True):
            problems.append(f'{name} was told to be "not written", and is there: {there}')
        elif operation.is_atomic and min(there) != max(there):
            problems.append(f"{name} ({operation.outcome}) is there in part: {there}")
        wrong = [
            (value, places)
            for value, place in zip(operation.values(), operation.places, strict=True)
            if (places := seen.get(value)) and places != [place]
        ]
        if wrong:
            problems.append(f"{name}: records in other places than they were sent to: {wrong[:3]}")
    expected = {value for operation in operations for value in operation.values()}
    problems += [f"nobody has sent {value!r}" for value in sorted(seen.keys() - expected)]
    return problems + list(_out_of_order(log))


def _places(log: Log) -> dict[str, list[Place]]:
    places: defaultdict[str, list[Place]] = defaultdict(list)
    for place, values in log.items():
        for value in values:
            places[value.decode().rstrip()].append(place)
    return places


def _out_of_order(log: Log) -> Iterator[str]:
    for place, values in log.items():
        newest: dict[str, tuple[int, int]] = {}
        for value in map(Value.of, values):
            at = value.number, value.index
            if at <= newest.get(value.life, (-1, -1)):
                yield f"{place}: {value.life}{at} stands behind {newest[value.life]}"
            newest[value.life] = at


def problems_of_file(path: Path) -> list[str]:
    """What `verify` finds."""
    with eosdb.connect(path) as db:
        report = db.verify()
    return [] if report.ok else [f"verify {path.name}: {problem}" for problem in report.problems]


def verdict(world: World, actor: Actor) -> list[str]:
    """Everything that is wrong after the end; empty when every promise was kept."""
    world.ledgers.refresh()
    log = committed(world.path, world.removed)
    problems = misjudged(list(world.ledgers.operations.values()), log)
    log = committed(world.path)
    with eosdb.connect(world.path) as db:
        for partition in range(PARTITIONS):
            read = committed_values(db, TopicPartition(TOPIC, partition))
            values = [value for value in read if value is not None]
            if values != log[Place(TOPIC, partition)]:
                problems.append(f"partition {partition}: a consumer reads other records than SQL")
    problems += actor.problems(world)
    for path in actor.files(world):
        problems += problems_of_file(path)
    problems += left_over(world, actor)
    return problems[:_MOST]


def look(world: World) -> list[str]:
    """What can be wrong at any instant: cheap, and while everything works."""
    return torn(world.path, world.removed)[:_MOST]


# -- what is left over ----------------------------------------------------------------------------


def left_over(world: World, actor: Actor) -> list[str]:
    """Processes of the session, files that its beginning did not make, and locks, after the end."""
    own = {role.pid for role in world.roles.values()} | {os.getpid()}
    problems = [
        f"a process is left: {pid} {name}" for pid, name in world.processes() if pid not in own
    ]
    known = world.names | {f"{path.name}{end}" for path in actor.files(world) for end in _ENDS}
    strays = {name for name in names_of(world.folder) - known if not name.startswith(LEDGER)}
    # What killed programs leave of their owner locks is removed by the next one that wants such a lock.
    strays -= {name for name in strays if name.endswith(".log") or OWNER in name}
    problems += [f"a file is left: {name}" for name in sorted(strays)]
    inodes = {path.stat().st_ino: path.name for path in world.folder.iterdir() if path.is_file()}
    for line in Path("/proc/locks").read_text().splitlines():
        inode = int(line.split()[-3].rsplit(":", 1)[-1])
        if inode in inodes:
            problems.append(f"a lock is left on {inodes[inode]}: {line}")
    return problems
