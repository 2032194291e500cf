"""Spark's structured streams, which copy a file into another one, each record exactly once."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

import eosdb
from eosdb import TopicPartition
from tests.trials.hunts import judge
from tests.trials.hunts.actors.actor import Actor, Copier, Need
from tests.trials.hunts.programs.spark import PROBLEMS, TARGET
from tests.trials.hunts.programs.working import PARTITIONS, TOPIC
from tests.trials.hunts.world import World


class Spark(Copier):
    """A driver with its JVM and its Python workers."""

    module = "spark"
    has = frozenset({Need.OWN_FILE, Need.LONG_LIFE, Need.WORKERS})
    ends_on_error = True
    weight = 12
    patience_s = 300.0  # A JVM on a busy machine.
    cannot: Mapping[str, str] = MappingProxyType(
        {
            "remove-oldest": "if records of its plan are gone, a query fails until it is planned again",
            "zombie": "not tried: on a busy machine a second driver makes no progress within a minute",
        }
    )

    def __init__(self, name: str, summary: str) -> None:
        self.name, self.summary = name, summary

    def left_out(self) -> str | None:
        if find_spec("pyspark") is None:
            return "pyspark is missing: pip install -e '.[spark]'"
        return None if shutil.which("java") else "Java is missing: apt-get install default-jre"

    def begin(self, world: World) -> None:
        with eosdb.connect(self._target(world)) as db:
            db.admin.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
        super().begin(world)

    def _target(self, world: World) -> Path:
        return world.folder / TARGET

    def progress(self, world: World) -> int:
        return sum(map(len, judge.committed(self._target(world)).values()))

    def settle(self, world: World) -> None:
        last = world.add("client", [*world.program(self.module, self.name), "end"])
        world.until(
            lambda: not last.is_up, "the query ends behind the last record", self.patience_s
        )
        own = {os.getpid(), *(role.pid for role in world.roles.values())}
        world.until(
            lambda: {pid for pid, _ in world.processes()} <= own, "the JVM ends with its driver"
        )

    def problems(self, world: World) -> list[str]:
        source, target = judge.committed(world.path), judge.committed(self._target(world))
        problems = []
        for place in sorted(source.keys() | target.keys()):
            wanted, there = Counter(source[place]), Counter(target[place])
            if wanted != there:
                lost, doubled = (wanted - there).total(), (there - wanted).total()
                problems.append(f"{place}: of {wanted.total()} {lost} lost, {doubled} doubled")
            elif source[place] != target[place]:
                problems.append(f"{place}: in another order than in the source")
        with eosdb.connect(self._target(world)) as db:
            for partition in range(PARTITIONS):
                at = db.broker.offsets(TopicPartition(TOPIC, partition))
                if at.last_stable_offset != at.log_end_offset:
                    problems.append(f"a transaction of the target is left open: {at}")
        with suppress(FileNotFoundError):
            problems += (world.folder / PROBLEMS).read_text().splitlines()
        return problems

    def files(self, world: World) -> list[Path]:
        return [world.path, self._target(world)]


ACTORS: Final[list[Actor]] = [
    Spark("spark-stream", "a Spark stream into the exactly-once sink of the data source"),
    Spark("spark-batch", "`write` in foreachBatch under the batch's number, and a reader by JDBC"),
]
