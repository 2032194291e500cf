"""Files that are moved to a cluster while they are written: a group of the cluster reads on
what the group of the file would have read, nothing lost, nothing twice."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import eosdb
from eosdb import TopicPartition
from tests.trials.hunts.actors import cluster
from tests.trials.hunts.actors.actor import Actor, Copier
from tests.trials.hunts.programs.moving import (
    GROUPS,
    MARKS,
    MOVES,
    PARTITIONS,
    command,
    path_of,
    topic_of,
)
from tests.trials.hunts.programs.working import FEEDER
from tests.trials.hunts.world import PATIENCE_S, HuntError, World

Rest = dict[int, list[bytes | None]]
_COUNT: Final = "SELECT count(*) FROM committed_records WHERE topic LIKE 'moved-%'"


class Move(Copier):
    name = "move"
    summary = "`eosdb migrate-to-kafka` of one file after the other, each with a writer"
    has = cluster.HAS
    weight = 3
    cannot: Mapping[str, str] = MappingProxyType(
        {
            "remove-oldest": "each of its files has lost its oldest records before it is moved",
            **cluster.CANNOT,
        }
    )

    def begin(self, world: World) -> None:
        self._there: dict[str, Rest] = {}
        (world.folder / MOVES).mkdir()
        cluster.begin(world, _cluster(world))
        world.add("feeder", world.program("moving", FEEDER))
        world.add("client", world.program("moving", self.name))

    def progress(self, world: World) -> int:
        """How many records the cluster has, and how many files were moved."""
        moved = len(list((world.folder / MOVES).glob("*.moved")))
        if cluster.BROKER is not None:
            return moved
        with closing(sqlite3.connect(_cluster(world), timeout=60)) as connection:
            ((count,),) = connection.execute(_COUNT)
        return int(count) + moved

    def settle(self, world: World) -> None:
        """Move the last file. The cluster is read while it is there."""
        for number in _ready(world):
            if not path_of(world.folder, number, "moved").exists():
                world.finish(*command(world.folder, number, world.address))
            for group in _groups(world, number):
                self._there[group] = _rest_there(
                    world.address, topic_of(world.folder, number), group
                )

    def problems(self, world: World) -> list[str]:
        problems = []
        for number in _ready(world):
            topic = topic_of(world.folder, number)
            with eosdb.connect(path_of(world.folder, number)) as db:
                live: Counter[str] = Counter()
                for partition in range(PARTITIONS):
                    tp = TopicPartition(topic, partition)
                    values = _values(db, tp, db.broker.offsets(tp).log_start_offset)
                    live.update(it.decode() for it in values if it and it.startswith(b"live"))
                sent = path_of(world.folder, number, "sent").read_text().splitlines()
                marks = {value: mark for mark, value in map(str.split, sent)}
                wrong = [value for value, mark in marks.items() if live[value] not in MARKS[mark]]
                wrong += sorted(live.keys() - marks.keys())
                if wrong:
                    problems.append(f"file {number} has not what its writer was told: {wrong[:5]}")
                for group in _groups(world, number):
                    if _rest(db, topic, group) != self._there[group]:
                        problems.append(f"group {group} does not read on as in the file")
        return problems

    def file_of(self, world: World) -> str:
        return cluster.FILE_OF

    def files(self, world: World) -> list[Path]:
        served = [_cluster(world)] if cluster.BROKER is None else []
        return [*served, *(path_of(world.folder, number) for number in _ready(world)[-1:])]


def _cluster(world: World) -> Path:
    return world.folder / "cluster.db"


def _ready(world: World) -> list[int]:
    return sorted(int(path.stem) for path in (world.folder / MOVES).glob("*.ready"))


def _groups(world: World, number: int) -> list[str]:
    return [f"{topic_of(world.folder, number)}-{group}" for group in range(GROUPS)]


def _rest(db: eosdb.Database, topic: str, group: str) -> Rest:
    """What the group has before it in the file."""
    return {
        tp.partition: _values(db, tp, committed.offset)
        for tp, committed in db.broker.offset_fetch(group).items()
        if tp.topic == topic
    }


def _values(db: eosdb.Database, tp: TopicPartition, at: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while at < db.broker.offsets(tp).last_stable_offset:
        data = db.broker.fetch_data(tp, at, isolation_level="read_committed")
        values += data.rows.value
        at = data.stop
    return values


def _rest_there(address: str, topic: str, group: str) -> Rest:
    """What a consumer of the cluster reads, from the group's offsets to the end of each partition."""
    import confluent_kafka as kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": address, "group.id": group, "isolation.level": "read_committed",
        "auto.offset.reset": "error", "enable.auto.commit": False, "enable.partition.eof": True,
    }  # fmt: skip
    consumer = kafka.Consumer(settings)
    wanted = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(consumer.committed(wanted, PATIENCE_S))
    rest: Rest = {partition: [] for partition in range(PARTITIONS)}
    left = set(rest)
    while left:
        message = consumer.poll(PATIENCE_S)
        if message is None:
            raise HuntError(f"group {group} reads nothing in the cluster")
        partition = message.partition()
        assert partition is not None
        if (error := message.error()) is None:
            rest[partition].append(message.value())
        elif error.code() == kafka.KafkaError._PARTITION_EOF:
            left.discard(partition)
        else:
            raise HuntError(f"group {group}: {error}")
    consumer.close()
    return rest


ACTORS: Final[list[Actor]] = [Move()]
