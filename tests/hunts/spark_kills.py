"""Kills Spark's driver and Python workers at random, again and again, while an exactly-once stream and
large batches copy records from one file into another, and counts what arrived.

    python tests/hunts/spark_kills.py [--kills 30] [--records 200000] [--seed 1]

Each round starts the job anew: the stream goes on from its checkpoint, and the batch is tried again under
its `txn_version`. Once both are through, records are added, and the next batch has the next version.
Meanwhile SIGKILL hits Python workers, whose tasks Spark tries again, and at last the JVM alone or the whole
job (driver, JVM and workers). After that the target is opened, which must end what was left open at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import eosdb
from eosdb import TopicPartition

PARTITIONS = 4
VALUE = b"x" * 80
JOB = """
import os, sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from eosdb.spark_io import read, read_stream, write
source, target, checkpoint, version, each = sys.argv[1:]
builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
for name, value in {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print("running", flush=True)
query = (
    read_stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=int(each))
    .selectExpr("key", "value").writeStream.format("eosdb").option("topic", "stream")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target)
)
query.awaitTermination()
frame = read(spark, source, columns="key,value")
write(frame, target, topic="batch", txn_app_id="copy", txn_version=int(version))
print("done", flush=True)
os._exit(0)
"""


def processes(session: int) -> dict[int, bytes]:
    """The processes of a session, with their commands."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes()
    return found


def kill_all(session: int) -> None:
    while running := processes(session):
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class Hunt:
    """One source, one target, and what has been counted so far."""

    def __init__(self, folder: Path, records: int, seed: int) -> None:
        self.source, self.target = folder / "source.db", folder / "target.db"
        self.checkpoint = folder / "checkpoint"
        self.records = records
        self.rng = random.Random(seed)
        self.made = 0
        self.expected: Counter[bytes] = Counter()
        self.kills: Counter[str] = Counter()
        self.left_open = 0
        self.version = 0
        self.seconds = 4.0
        """How long a round is left alone at most; follows how long one takes."""
        with eosdb.connect(self.source) as db:
            db.admin.create_topic("t", partitions=PARTITIONS)
        with eosdb.connect(self.target) as db:
            for topic in ("stream", "batch"):
                db.admin.create_topic(topic, partitions=PARTITIONS)
        self.add()

    def add(self) -> None:
        """More records; a batch copies all there are."""
        end = self.made + self.records
        with eosdb.connect(self.source, durability="off") as db, db.producer() as producer:
            producer.send_many("t", [(b"%d" % i, VALUE + b"%d" % i) for i in range(self.made, end)])
        self.made = end
        self.version += 1
        self.expected.update(b"%d" % i for i in range(end))

    def round(self, *, kill: bool) -> bool:
        """Run the job, and kill something; whether it came to its end."""
        arguments = [self.source, self.target, self.checkpoint, self.version, self.records // 6]
        child = subprocess.Popen(
            [sys.executable, "-c", JOB, *map(str, arguments)], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
        assert child.stdout is not None
        with child.stdout:
            started = child.stdout.readline() == "running\n"
            begin = time.monotonic()
            try:
                if kill and started:
                    self._kill(child)
                is_done = "done" in child.stdout.read()
            finally:
                kill_all(child.pid)
                child.wait()
        # Kills are to hit everything, from the first micro-batch to the end of the batch.
        self.seconds = time.monotonic() - begin if is_done else min(self.seconds * 1.3, 120.0)
        return is_done

    def _kill(self, child: subprocess.Popen[str]) -> None:
        """Some workers, whose tasks Spark tries again, and at last what ends the job."""
        for last in (False, False, True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(self.rng.uniform(0.3, self.seconds / 3))
                return
            running = processes(child.pid)
            workers = [pid for pid, command in running.items() if b"pyspark" in command]
            machine = [
                pid for pid, command in running.items() if b"java" in command.split(b"\0")[0]
            ]
            what = self.rng.choice(["job", "job", "JVM"]) if last else "worker"
            if what == "worker" and not workers:
                continue
            if what == "worker":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.rng.choice(workers), signal.SIGKILL)
            elif what == "JVM" and machine:
                os.kill(machine[0], signal.SIGKILL)
            else:
                what = "job"
                kill_all(child.pid)
                self._open_again()
            self.kills[what] += 1

    def _open_again(self) -> None:
        places = [TopicPartition(t, p) for t in ("stream", "batch") for p in range(PARTITIONS)]
        with eosdb.connect(self.target, read_only=True) as db:
            self.left_open += any(db.broker.offsets(tp).first_unstable_offset >= 0 for tp in places)
        with eosdb.connect(self.target) as db:
            for tp in places:
                found = db.broker.offsets(tp)
                assert found.last_stable_offset == found.log_end_offset, f"{tp}: {found}"

    def check(self) -> list[str]:
        """A line for each target. Nothing may be lost or doubled."""
        lines = []
        with eosdb.connect(self.target) as db:
            assert db.verify().ok
            wanted = {
                "stream": Counter(b"%d" % i for i in range(self.made)),
                "batch": self.expected,
            }
            for topic, expected in wanted.items():
                found: Counter[bytes] = Counter()
                for partition in range(PARTITIONS):
                    tp = TopicPartition(topic, partition)
                    end = db.broker.offsets(tp).last_stable_offset
                    for rows in db.admin.scan(tp, 0, end, columns=("key",)):
                        found.update(key for (key,) in rows)
                lost, doubled = (expected - found).total(), (found - expected).total()
                lines.append(
                    f"{topic}: {expected.total():,} records in, {found.total():,} out, "
                    f"{lost} lost, {doubled} doubled"
                )
                assert not lost
                assert not doubled
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hunt = Hunt(Path(folder), asked.records, asked.seed)
        passes = 0
        while hunt.kills.total() < asked.kills:
            if hunt.round(kill=True):
                passes += 1
                hunt.add()
            print(dict(hunt.kills), f"{hunt.left_open} left open", f"{passes} passes", flush=True)
        while not hunt.round(kill=False):
            pass
        lines = hunt.check()
        left = sorted(Path(folder).glob("*-staging/*"))
        print(
            f"{hunt.kills.total()} kills: {dict(hunt.kills)}; {hunt.left_open} left a transaction open"
        )
        print(*lines, f"{len(left)} staged files left", sep="\n")


if __name__ == "__main__":
    main()
