"""What a relay costs beside a plain loop of confluent-kafka that copies from topic to topic.

`EOSDB_BENCH_KAFKA=HOST:PORT python -m benchmarks.relay_speed [--records 1000000]` takes a broker. Each way
runs in a process of its own, in turns: file to Kafka, Kafka to Kafka by the loop (consume, produce, offsets
in the transaction), Kafka to file, file to file. Figures: records a second, CPU time of that process for a
million records, and its largest resident memory, beside that for a tenth of the records. The best of the
rounds is shown, for others may use the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import eosdb
from benchmarks.kafka import real
from eosdb import TopicPartition

VALUE: Final = b"x" * 100
PARTITIONS: Final = 2
IN_TRANSACTION: Final = 1_000
CHUNK: Final = 5_000
"""Records in a transaction of the target: the relay's default, and the loop's."""


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    rss_mb: float

    def row(self, records: int) -> str:
        million = self.cpu_s * 1e6 / records
        rate = records / self.wall_s
        return f"{rate:,.0f} records/s, {million:.1f} s of CPU a million, {self.rss_mb:.0f} MB"


def run(*command: str) -> Cost:
    began = time.monotonic()
    child = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")
    return Cost(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def relay(*arguments: str) -> Cost:
    return run("-m", "eosdb.cli", "relay", *arguments, "--once")


def fill(path: Path, topic: str, records: int) -> None:
    with eosdb.connect(path) as db, db.producer(transactional_id="fill") as producer:
        db.admin.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        producer.init_transactions()
        for start in range(0, records, IN_TRANSACTION):
            with producer.transaction():
                for partition in range(PARTITIONS):
                    count = IN_TRANSACTION // PARTITIONS
                    pairs = ((b"%d" % (start + number), VALUE) for number in range(count))
                    producer.send_many(topic, pairs, partition=partition)


def copy(servers: str, source: str, target: str, records: int) -> None:
    """The plain loop, to the end of what there is."""
    import confluent_kafka as kafka

    consumer = kafka.Consumer(
        {
            "bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        }
    )  # fmt: skip
    producer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions()
    tps = [kafka.TopicPartition(source, number, 0) for number in range(PARTITIONS)]
    consumer.assign(tps)
    left = records
    while left:
        producer.begin_transaction()
        found = consumer.consume(min(CHUNK, left), 1.0)
        for message in found:
            assert message.error() is None, message.error()
            producer.produce(
                target, message.value(), message.key(), message.partition(),
                headers=message.headers(), timestamp=message.timestamp()[1],
            )  # fmt: skip
        positions = consumer.position(tps)
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
        left -= len(found)
    consumer.close()


def ways(servers: str, folder: Path, records: int) -> dict[str, Callable[[], Cost]]:
    topic, sent = f"relay-speed-{uuid.uuid4().hex}", f"relay-speed-{uuid.uuid4().hex}"
    source, other = folder / "source.db", folder / "other.db"
    fill(source, topic, records)
    fill(other, sent, records)
    relay(str(source), "--to", servers)  # For the others to read.

    def to_kafka() -> Cost:
        found = relay(str(other), "--to", servers, "--name", uuid.uuid4().hex)
        real().delete_topic(sent)
        return found

    def loop() -> Cost:
        target = real().create_topic(PARTITIONS)
        return run("-m", "benchmarks.relay_speed", "--copy", topic, target, str(records))

    def from_kafka() -> Cost:
        copied = str(folder / f"{uuid.uuid4().hex}.db")
        found = relay(copied, "--from", servers, "--topic", topic, "--create")
        Path(copied).unlink()
        return found

    def to_file() -> Cost:
        copied = folder / f"{uuid.uuid4().hex}.db"
        found = relay(str(source), "--to", str(copied), "--create")
        with eosdb.connect(copied) as db:
            ends = [db.broker.offsets(TopicPartition(topic, n)) for n in range(PARTITIONS)]
            assert sum(end.log_end_offset for end in ends) >= records
        copied.unlink()
        return found

    return {
        "file to Kafka": to_kafka,
        "Kafka to Kafka, plain loop": loop,
        "Kafka to file": from_kafka,
        "file to file": to_file,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--copy", nargs=3, metavar=("FROM", "TO", "RECORDS"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    servers = os.environ["EOSDB_BENCH_KAFKA"]
    if options.copy:
        source, target, records = options.copy
        return copy(servers, source, target, int(records))
    for count in (options.records // 10, options.records):
        with tempfile.TemporaryDirectory() as folder:
            found: dict[str, list[Cost]] = {}
            taken = ways(servers, Path(folder), count)
            for _ in range(options.rounds):
                for name, way in taken.items():
                    found.setdefault(name, []).append(way())
            for name, costs in found.items():
                best = Cost(*(min(getattr(c, f) for c in costs) for f in Cost.__annotations__))
                print(f"{count:>9,} {name}: {best.row(count)}", flush=True)
    return None


if __name__ == "__main__":
    main()
