"""MirrorMaker 2 from one file to another, exactly once, both servers killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import eosdb
from tests.trials.judges.artifacts import CONNECT, class_path, java, kafka_jar
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.connect import LOGGING
from tests.trials.judges.python_clients import PARTITIONS, RECORDS, compare, fill
from tests.trials.judges.serving import Server, wait_until

JARS: Final = [
    kafka_jar("connect-mirror", version=CONNECT),
    kafka_jar("connect-json", version=CONNECT),
    *LOGGING,
]
COPY: Final = "a.input"
"""The name of the topic in the other file."""
MARKS: Final = (2_000, 8_000, 14_000)
UP_S: Final = 600.0
SETTINGS: Final = """
clusters=a,b
a.bootstrap.servers={source}
b.bootstrap.servers={target}
a->b.enabled=true
a->b.topics=input
b->a.enabled=false
exactly.once.source.support=enabled
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:0
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
tasks.max=2
scheduled.rebalance.max.delay.ms=0
refresh.topics.interval.seconds=5
offset.flush.interval.ms=1000
"""
PROGRAM: Final = "org.apache.kafka.connect.mirror.MirrorMaker"


def from_file_to_file(case: Case) -> str:
    jars = class_path("mirror", JARS)
    case.create_topics(PARTITIONS, "input")
    fill(case)
    with Server(case.folder / "target.db", case.folder / "target.log") as target:
        settings = case.folder / "mirror.properties"
        settings.write_text(SETTINGS.format(source=case.server.bootstrap, target=target.bootstrap))
        other = Case(case.folder, target)
        command = [java(), "-Xmx512m", "-cp", jars, PROGRAM, str(settings)]
        with case.running("mirror", command):
            wait_until(_has_topic(target), f"{COPY} is in the other file", UP_S)
            copied = other.watch(COPY)
            with target.killed_at(copied, MARKS):
                case.server.kill_and_restart()
                wait_until(lambda: len(other.committed(COPY)) >= RECORDS, "all is copied", UP_S)
        said = compare(case.committed("input"), other.committed(COPY))
        target.stop()
        other.verify("verify-target")
        return f"{said}; the target killed {target.kills} times"


def _has_topic(target: Server) -> Callable[[], bool]:
    def has() -> bool:
        with eosdb.connect(target.file) as db:
            return COPY in db.admin.list_topics()

    return has


JUDGES: Final = [Judge("mirror maker", f"MirrorMaker 2 {CONNECT}", from_file_to_file)]
