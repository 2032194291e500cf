"""A file that is restored while its clients live on: what the new life acknowledges is stored, once.

Method: librdkafka's producers, idempotent and transactional, and a reader go on over kills of the server.
After each kill an older copy takes the place of the file, as docs/backups.md says. A record counts if it
was acknowledged after the last restore.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

import eosdb
from tests.crash.test_served import Served
from tests.readers import committed_values
from tests.wire.clients import PATIENCE_S

pytestmark = pytest.mark.crash
RESTORES = 6


def transactional(where: str) -> Producer:
    made = Producer({"bootstrap.servers": where, "transactional.id": "shop", "linger.ms": 0})
    made.init_transactions(PATIENCE_S)
    return made


def committed(producer: Producer, values: list[bytes]) -> bool:
    """Whether a transaction with the values was committed, and its commit answered."""
    with contextlib.suppress(KafkaException):
        producer.begin_transaction()
        for value in values:
            producer.produce("tx", value, partition=0)
        producer.commit_transaction(PATIENCE_S)
        return True
    with contextlib.suppress(KafkaException):
        producer.abort_transaction(PATIENCE_S)
    return False


@pytest.mark.parametrize("kept", [10, 40])
def test_what_is_acknowledged_after_a_restore_is_stored_once(tmp_path: Path, kept: int) -> None:
    path, copy, served, numbers = (
        tmp_path / "a.db",
        tmp_path / "copy.db",
        Served(tmp_path / "a.db"),
        count(),
    )
    acknowledged = list[bytes]()
    with eosdb.connect(path) as db:
        for topic in ("plain", "tx"):
            db.admin.create_topic(topic)
    where = served.start()
    plain = Producer({"bootstrap.servers": where, "enable.idempotence": True, "linger.ms": 0})
    zombie = transactional(where)
    settings = {"bootstrap.servers": where, "group.id": "g", "auto.offset.reset": "earliest"}
    reader = Consumer({**settings, "enable.auto.commit": False})
    reader.assign([TopicPartition("plain", 0, 0)])

    def send(records: int) -> None:
        for _ in range(records):
            value = b"%d" % next(numbers)

            def told(error: KafkaError | None, _: Message, value: bytes = value) -> None:
                acknowledged.extend([] if error else [value])

            plain.produce("plain", value, partition=0, on_delivery=told)
            plain.poll(0)

    try:
        for _ in range(RESTORES):
            send(kept)
            assert plain.flush(PATIENCE_S) == 0
            with eosdb.connect(path) as db:
                db.backup(copy)
            send(20)
            assert plain.flush(PATIENCE_S) == 0
            committed(zombie, [b"lost %d" % next(numbers)])
            reader.consume(10_000, 1)
            served.kill()
            for suffix in ("", "-wal", "-shm", "-lock"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(f"{path}{suffix}")
            shutil.copy(copy, path)
            copy.unlink()
            acknowledged.clear()
            send(30)  # The client has not noticed yet.
            served.start()
            successor, pairs = transactional(where), list[list[bytes]]()
            for producer in (zombie, successor, zombie, successor):
                pair = [b"%d a" % (number := next(numbers)), b"%d b" % number]
                if committed(producer, pair):
                    pairs.append(pair)
            assert plain.flush(PATIENCE_S) == 0
            with eosdb.connect(path, read_only=True) as db:
                stored = Counter(committed_values(db, eosdb.TopicPartition("plain", 0)))
                assert len(acknowledged) == 30
                assert [stored[value] for value in acknowledged] == [1] * 30
                in_pairs = Counter(
                    v or b"" for v in committed_values(db, eosdb.TopicPartition("tx", 0))
                )
                assert all(in_pairs[value] == 1 for pair in pairs for value in pair)
                assert len(pairs) >= 2, "the successor works"
                assert {value for value in in_pairs if value[-1:] == b"a"} == {
                    value[:-1] + b"a" for value in in_pairs if value[-1:] == b"b"
                }, "no half transaction"
                end = db.broker.offsets(eosdb.TopicPartition("plain", 0)).log_end_offset
            read = [
                message.offset()
                for message in reader.consume(30, PATIENCE_S)
                if not message.error()
            ]
            assert read == [*range(end - 30, end)], "the reader went back to where the logs part"
            zombie = successor
        with eosdb.connect(path) as db:
            assert db.verify().ok
    finally:
        reader.close()
        served.kill()
