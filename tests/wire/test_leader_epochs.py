"""Leader epochs (KIP-320): a file that was restored under its clients tells them where the logs part."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb import ManualClock
from eosdb.model.fetched import LeaderEpochs
from tests.cases import each
from tests.wire.clients import PATIENCE_S
from tests.wire.peer import Peer, asking, fetch, part_of

FENCED, UNKNOWN, OUT_OF_RANGE = 74, 75, 1


@each(
    ("asked", "end"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (2, (2, 10)),
        (3, (3, 20)),
        (6, (3, 20)),
        (7, (7, 25)),
        (8, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(asked: int, end: tuple[int, int]) -> None:
    epochs = LeaderEpochs(7, 25, ((3, 10), (7, 20)))
    assert epochs.end_of(asked) == end
    assert [epochs.at(offset) for offset in (0, 9, 10, 19, 20, 24, 25)] == [0, 0, 3, 3, 7, 7, 7]


@pytest.fixture
def restored(db: eosdb.Database, tmp_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    """A copy with two records of life 0, and two of the present life: one of an old and one of a new
    topic's partition."""
    db.admin.create_topic("t")
    with db.producer() as producer:
        producer.send("t", b"0")
        producer.send("t", b"1")
    db.backup(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", clock=clock) as copy:
        copy.admin.create_topic("new")
        with copy.producer() as producer:
            for topic in ("t", "new"):
                producer.send(topic, b"2")
        yield copy
        assert copy.verify().ok


def test_answers_name_the_epoch_of_the_life(restored: eosdb.Database) -> None:
    ((life,),) = restored.query("SELECT life FROM eosdb_lives").all()
    with restored.serve() as server, Peer(server) as peer:
        for topic in ("t", "new"):
            described = asking(
                MetadataRequest, topics=[{"name": topic}], allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
            )  # fmt: skip
            found = peer.ask(described, 9).topics[0].partitions[0]
            assert found.leader_epoch == life

        def epoch_end(epoch: int, current: int, topic: str = "t") -> Any:
            asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            topics = [{"topic": topic, "partitions": [asked]}]
            request = asking(OffsetForLeaderEpochRequest, replica_id=-1, topics=topics)
            answer = peer.ask(request, 4).topics[0].partitions[0]
            return answer.error_code or (answer.leader_epoch, answer.end_offset)

        assert epoch_end(0, life) == (0, 2)
        assert epoch_end(0, life, "new") == (0, 0), "no record of it was read before"
        assert epoch_end(life, -1) == (life, 3)
        assert epoch_end(life + 1, life) == (-1, -1)
        assert epoch_end(0, 0) == FENCED
        assert epoch_end(0, life + 1) == UNKNOWN

        def listed(timestamp: int, current: int = -1) -> Any:
            asked = {"partition_index": 0, "current_leader_epoch": current, "timestamp": timestamp}
            topics = [{"name": "t", "partitions": [asked]}]
            request = asking(ListOffsetsRequest, replica_id=-1, isolation_level=0, topics=topics)
            answer = peer.ask(request, 4).topics[0].partitions[0]
            return answer.error_code or (answer.offset, answer.leader_epoch)

        assert (listed(-2), listed(-1)) == ((0, 0), (3, life))
        assert (listed(-1, 0), listed(-1, life + 1)) == (FENCED, UNKNOWN)

        def read(offset: int, last: int = -1, current: int = -1) -> Any:
            request = fetch(offset)
            asked = request.topics[0].partitions[0]
            asked.last_fetched_epoch, asked.current_leader_epoch = last, current
            return part_of(peer.ask(request, 12))

        assert read(0, current=0).error_code == FENCED
        assert read(0, current=life + 1).error_code == UNKNOWN
        assert read(0, life + 1).error_code == OUT_OF_RANGE
        part = read(3, 0)
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 2)
        assert not part.records
        assert read(2, 0).records
        assert read(0, life, life).records


@contextlib.contextmanager
def served(path: Path, port: int) -> Iterator[eosdb.Database]:
    with eosdb.connect(path) as db, db.serve(port=port):
        yield db


def put_back(path: Path, copy: Path) -> None:
    """As docs/backups.md says: no writer, the files away, the copy in their place."""
    for suffix in ("", "-wal", "-shm", "-lock"):
        if os.path.exists(f"{path}{suffix}"):
            os.rename(f"{path}{suffix}", f"{path}.gone{suffix}")
    shutil.copy(copy, path)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def put(db: eosdb.Database, name: str, count: int) -> None:
    with db.producer() as producer:
        for number in range(count):
            producer.send("t", b"%s %d" % (name.encode(), number))


@pytest.mark.slow
def test_a_reader_learns_that_the_log_was_restored_under_it(tmp_path: Path, port: int) -> None:
    path, address = tmp_path / "a.db", f"127.0.0.1:{port}"
    with served(path, port) as db:
        db.admin.create_topic("t")
        put(db, "kept", 30)
        db.backup(tmp_path / "copy.db")
        put(db, "lost", 20)
        settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
        reader = Consumer({**settings, "enable.auto.commit": False})
        reader.assign([TopicPartition("t", 0, 0)])
        assert len(reader.consume(50, PATIENCE_S)) == 50
    put_back(path, tmp_path / "copy.db")
    with served(path, port) as db:
        put(db, "new", 30)
        messages = reader.consume(30, PATIENCE_S)
        reader.close()
    assert [m.offset() for m in messages] == [*range(30, 60)]


@pytest.mark.slow
def test_a_zombie_of_librdkafka_publishes_nothing_of_its_successor(
    tmp_path: Path, port: int
) -> None:
    """Both instances of the transactional id began from the same copy."""
    path, address = tmp_path / "a.db", f"127.0.0.1:{port}"

    def instance() -> Producer:
        made = Producer({"bootstrap.servers": address, "transactional.id": "shop", "linger.ms": 0})
        made.init_transactions(PATIENCE_S)
        return made

    def send(producer: Producer, value: bytes) -> None:
        producer.produce("t", value, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    with served(path, port) as db:
        db.admin.create_topic("t")
        db.backup(tmp_path / "copy.db")
        zombie = instance()
        zombie.begin_transaction()
        send(zombie, b"lost half")
    put_back(path, tmp_path / "copy.db")
    with served(path, port) as db:
        successor = instance()
        successor.begin_transaction()
        send(successor, b"first half")
        with pytest.raises(KafkaException):
            zombie.commit_transaction(PATIENCE_S)
        count = "SELECT count(*) FROM committed_records"
        assert db.query(count).all() == [(0,)]
        send(successor, b"second half")
        successor.commit_transaction(PATIENCE_S)
        assert db.query(count).all() == [(2,)]
        assert db.verify().ok
