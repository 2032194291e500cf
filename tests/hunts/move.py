"""Moves a file to a Kafka cluster with kills, and compares every record and the place of every group.

    python -m tests.hunts.move [HOST:PORT] [--records 20000] [--kills 20]

Without an address `eosdb serve` stands in for the cluster. While a program writes, the command is killed
with SIGKILL after a random time, again and again, and then let through. What a group of the cluster reads
on from its offset must be what the group of the file would have read: nothing lost, nothing twice.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import PolicyViolationError

_PARTITIONS = 4
_TOO_LONG_S = 120
Place = dict[TopicPartition, list[bytes | None]]


def _fill(db: eosdb.Database, topic: str, records: int) -> None:
    """Transactions of 50 records, every fifth of which is aborted; then the beginning is deleted."""
    with db.producer(transactional_id="filling") as producer:
        producer.init_transactions()
        for start in range(0, records, 50):
            producer.begin_transaction()
            for number in range(start, min(start + 50, records)):
                producer.send(topic, f"{number}", f"k{number % 97}", partition=number % _PARTITIONS)
            producer.flush()
            if start % 250 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    for partition in range(_PARTITIONS):
        db.broker.delete_records(TopicPartition(topic, partition), records // 50)


def _groups(db: eosdb.Database, topic: str, chance: random.Random) -> None:
    """Groups anywhere, also at markers and aborted records."""
    for number in range(12):
        for partition in range(_PARTITIONS):
            tp = TopicPartition(topic, partition)
            offsets = db.broker.offsets(tp)
            at = chance.randint(offsets.log_start_offset, offsets.last_stable_offset)
            db.broker.offset_commit(f"{topic}-{number}", {tp: OffsetAndMetadata(at)})


def _rest(db: eosdb.Database, topic: str, group: str) -> Place:
    """What the group has before it in the file."""
    return {
        tp: _values(db, tp, committed.offset)
        for tp, committed in db.broker.offset_fetch(group).items()
        if tp.topic == topic
    }


def _values(db: eosdb.Database, tp: TopicPartition, at: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while at < db.broker.offsets(tp).last_stable_offset:
        data = db.broker.fetch_data(tp, at, isolation_level="read_committed")
        found += data.values
        at = data.next_offset
    return found


def _rest_there(address: str, topic: str, group: str) -> Place:
    """What a consumer of the group reads, from its committed offsets to the end of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: Place = {TopicPartition(topic, number): [] for number in range(_PARTITIONS)}
    left = set(found)
    while left:
        message = consumer.poll(_TOO_LONG_S)
        assert message is not None, f"{group} reads nothing"
        tp = TopicPartition(topic, message.partition() or 0)
        error = message.error()
        if error is None:
            found[tp].append(message.value())
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            left.discard(tp)
        else:
            raise SystemExit(f"{group}: {error}")
    consumer.close()
    return found


def _write_until_refused(path: Path, topic: str, sent: list[bytes]) -> None:
    number = 0
    with eosdb.connect(path, durability="off") as db, db.producer() as producer:
        while True:
            value = b"live-%d" % number
            try:
                producer.send(topic, value, b"k", partition=number % _PARTITIONS).result()
            except PolicyViolationError:
                return
            sent.append(value)
            number += 1


@contextmanager
def _cluster(address: str | None, folder: Path) -> Iterator[str]:
    if address is not None:
        yield address
        return
    with eosdb.connect(folder / "cluster.db", durability="off") as db, db.serve() as server:
        yield server.bootstrap_servers


def main() -> None:
    """Raises SystemExit with what was found to be different."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance, killed, moves, compared = random.Random(asked.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as name, _cluster(asked.address, Path(name)) as address:
        while killed < asked.kills:  # The last run of a move is left alone, and most end soon.
            path = Path(name) / f"shop-{moves}.db"
            kills, same = _round(path, address, asked.records, asked.kills - killed, chance)
            killed, moves, compared = killed + kills, moves + 1, compared + same
    print(f"{moves} moves, {killed} kills, {compared} records compared: the same")


def _round(
    path: Path, address: str, records: int, kills: int, chance: random.Random
) -> tuple[int, int]:
    """Move one file with at most so many kills: how many there were, and how many records were compared."""
    topic = f"moved-{uuid.uuid4().hex[:8]}"
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic(topic, _PARTITIONS, {"retention.ms": "-1"})
        _fill(db, topic, records)
        _groups(db, topic, chance)
        sent: list[bytes] = []
        writer = threading.Thread(
            target=_write_until_refused, args=(path, topic, sent), daemon=True
        )
        writer.start()
        killed = _move_with_kills(path, address, kills, chance)
        writer.join(_TOO_LONG_S)
        live = []
        for number in range(_PARTITIONS):
            tp = TopicPartition(topic, number)
            values = _values(db, tp, db.broker.offsets(tp).log_start_offset)
            live += [value for value in values if value and value.startswith(b"live")]
        if sorted(live) != sorted(sent):
            raise SystemExit("what was acknowledged to the writer is not what the file has")
        compared = 0
        for number in range(12):
            group = f"{topic}-{number}"
            here, there = _rest(db, topic, group), _rest_there(address, topic, group)
            compared += sum(map(len, here.values()))
            if here != there:
                raise SystemExit(f"group {group} does not read on as in the file")
    print(
        f"moved after {killed} kills: 12 groups read on in the cluster with the same {compared} "
        f"records; {len(sent)} live",
        flush=True,
    )
    return killed, compared


def _move_with_kills(path: Path, address: str, kills: int, chance: random.Random) -> int:
    """How often the command was killed before it was through."""
    command = [
        sys.executable, "-m", "eosdb.cli", "migrate-to-kafka", str(path), "--to", address, "--execute",
    ]  # fmt: skip
    killed = 0
    while True:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            out, _ = running.communicate(
                timeout=chance.uniform(0.4, 2.0) if killed < kills else None
            )
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            killed += 1
            continue
        if running.returncode != 0:
            raise SystemExit(out.decode())
        return killed


if __name__ == "__main__":
    main()
