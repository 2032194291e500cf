"""Relays: from file to file, from a file to Kafka, and back.

Every record must arrive once, with its key,
value, headers and timestamp, in the order of its partition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import eosdb
from tests.integrations.relay.contents import Content, contents, placed
from tests.trials.hunts.actors import cluster
from tests.trials.hunts.actors.actor import Actor, Copier, Need
from tests.trials.hunts.programs.working import FEEDER, PARTITIONS, TOPIC
from tests.trials.hunts.world import PATIENCE_S, HuntError, World

_TIMEOUT_MS: Final = 6_000
"""Of the relay's transactions at the cluster."""
_ON_GAP: Final = ("--on-gap", "earliest")
"""What was removed before it was relayed is lacking; that nothing else is, is judged."""
_ONLY_READS: Final = "none of its requests writes: its position is in the target"
_READS_FILE: Final = "it only reads the file, and the broker's disk is not eosdb's"
_WRITES: Final = ("disk-full", "disk-full-once", "write-fails", "sync-fails", "syncs-fail")
_COUNT: Final = "SELECT count(*) FROM committed_records WHERE topic = ?"


def count(path: Path, topic: str = TOPIC) -> int:
    """How many records a reader of the file finds; 0 while there is no file."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        (found,) = connection.execute(_COUNT, (topic,)).fetchone()
        return int(found)


def in_file(path: Path, topic: str = TOPIC) -> list[Content]:
    with eosdb.connect(path) as db:
        return contents(db, topic)


def history(world: World) -> list[tuple[tuple[int, int], Content, bool]]:
    """Every record of the topic by partition and offset, and whether it was removed since."""
    with eosdb.connect(world.path) as db:
        there = placed(db, TOPIC)
    every = world.removed | there
    return [(place, every[place], place not in there) for place in sorted(every)]


def source_of(world: World, target: list[Content]) -> list[Content]:
    """The topic, with what was removed from its beginning as far as it has come to the target."""
    carried = {content._replace(headers=()) for content in target}
    return [
        content
        for _, content, is_removed in history(world)
        if not is_removed or content._replace(headers=()) in carried
    ]


def in_cluster(address: str) -> list[Content]:
    """By librdkafka, read_committed, up to the ends of the partitions."""
    import confluent_kafka as kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": address, "group.id": "judge", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    }  # fmt: skip
    found: list[Content] = []
    consumer = kafka.Consumer(settings)
    for partition in range(PARTITIONS):
        consumer.assign([kafka.TopicPartition(TOPIC, partition, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None:
            if (error := message.error()) is None:
                headers = tuple(cast("list[tuple[str, bytes | None]]", message.headers() or []))
                timestamp, key, value = message.timestamp()[1], message.key(), message.value()
                found.append(Content(partition, timestamp, key, value, headers))
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                break
        else:
            raise HuntError(f"partition {partition} of the cluster cannot be read to its end")
    consumer.close()
    return found


def different(source: list[Content], target: list[Content]) -> list[str]:
    """Where the target is not the source; empty when they are the same."""
    if source == target:
        return []
    at = next(
        (i for i, (a, b) in enumerate(zip(source, target, strict=False)) if a != b),
        min(len(source), len(target)),
    )
    return [
        f"{len(source)} records in the source, {len(target)} in the target, the same up to number "
        f"{at}: {source[at : at + 2]} there, {target[at : at + 2]} here; "
        f"{len(target) - len(set(target))} are in the target twice"
    ]


class Relay(Copier):
    """The command, started again whenever it ended."""

    has = frozenset({Need.OWN_FILE, Need.LONG_LIFE})
    ends_on_error = True

    def begin(self, world: World) -> None:
        self._target: list[Content] = []
        world.add("feeder", world.program("writers", FEEDER))
        world.add("client", world.command(*self._command(world)))

    def _command(self, world: World) -> list[object]:
        raise NotImplementedError

    def files(self, world: World) -> list[Path]:
        return [world.path, copy(world)]

    def progress(self, world: World) -> int:
        return count(copy(world))

    def settle(self, world: World) -> None:
        """Catch up. The target is read while a cluster is still there."""
        world.finish(*self._command(world), "--once")
        self._target = self._read(world)

    def _read(self, world: World) -> list[Content]:
        return in_file(copy(world))

    def problems(self, world: World) -> list[str]:
        return different(source_of(world, self._target), self._target)


class RelayToFile(Relay):
    name = "relay-file"
    summary = "`eosdb relay` from a file to a file"

    def _command(self, world: World) -> list[object]:
        return ["relay", world.path, "--to", copy(world), "--create", *_ON_GAP]


class RelayToKafka(Relay):
    name = "relay-kafka"
    summary = "`eosdb relay` from a file to Kafka"
    has = cluster.HAS
    cannot: Mapping[str, str] = MappingProxyType(
        {} if cluster.BROKER is None else {**dict.fromkeys(_WRITES, _READS_FILE), **cluster.CANNOT}
    )

    def begin(self, world: World) -> None:
        self._most = 0
        cluster.begin(world, copy(world))
        super().begin(world)

    def files(self, world: World) -> list[Path]:
        return super().files(world) if cluster.BROKER is None else [world.path]

    def file_of(self, world: World) -> str:
        return cluster.FILE_OF

    def progress(self, world: World) -> int:
        if cluster.BROKER is None:
            return super().progress(world)
        self._most = max(self._most, cluster.end_offsets(world.address))
        return self._most

    def _command(self, world: World) -> list[object]:
        config = world.folder / "client.properties"
        config.write_text(
            f"transaction.timeout.ms={_TIMEOUT_MS}\nmessage.timeout.ms={_TIMEOUT_MS}\n"
        )
        return ["relay", world.path, "--to", world.address, "--command-config", config, *_ON_GAP]

    def _read(self, world: World) -> list[Content]:
        return in_cluster(world.address)


class RelayFromKafka(Relay):
    name = "relay-back"
    summary = "`eosdb relay` from Kafka to a file"
    has = cluster.HAS
    cannot: Mapping[str, str] = MappingProxyType(
        {**dict.fromkeys(("lost-answer", "twice"), _ONLY_READS), **cluster.CANNOT}
    )

    def begin(self, world: World) -> None:
        """The feeder's file is served; a broker gets its records by a relay under no fault."""
        if cluster.BROKER is None:
            world.serve()
        else:
            cluster.begin(world, world.path)
            world.add("other", world.command(*to_cluster(world, "there")))
        super().begin(world)

    def settle(self, world: World) -> None:
        if cluster.BROKER is not None:
            world.roles["other"].stop()
            world.finish(*to_cluster(world, "there"), "--once")
        super().settle(world)

    def file_of(self, world: World) -> str:
        """The client writes the target; the server only reads."""
        return "client"

    def _command(self, world: World) -> list[object]:
        return ["relay", copy(world), "--from", world.address, "--create", *_ON_GAP]


def to_cluster(world: World, name: str) -> list[object]:
    """The command that relays into the cluster; its name is of this session alone."""
    config = world.folder / "client.properties"
    config.write_text(f"transaction.timeout.ms={_TIMEOUT_MS}\nmessage.timeout.ms={_TIMEOUT_MS}\n")
    name = f"{name}-{world.folder.name}"
    return [
        "relay", world.path, "--to", world.address, "--command-config", config, "--name", name,
    ]  # fmt: skip


def copy(world: World) -> Path:
    """The file of the target."""
    return world.folder / "copy.db"


ACTORS: Final[list[Actor]] = [RelayToFile(), RelayToKafka(), RelayFromKafka()]
