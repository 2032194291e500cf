"""Keys land where Kafka's clients would put them: facts from librdkafka's and the Java client's tests."""

from __future__ import annotations

import zlib

import pytest

import eosdb
from eosdb.model.records.partitioner import consistent_random, murmur2, murmur2_random


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_java_clients_hash(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_consistent_random_is_the_crc_of_the_key() -> None:
    assert consistent_random(b"order-42", 7) == zlib.crc32(b"order-42") % 7


def test_murmur2_random_ignores_the_sign_before_the_modulo() -> None:
    assert murmur2_random(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


def test_a_callable_decides_and_is_checked(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)
    chosen = db.producer(partitioner=lambda key, partitions: len(key) % partitions)
    assert chosen.send("t", b"v", key=b"four").result().partition == 1
    beyond = db.producer(partitioner=lambda key, partitions: partitions)
    with pytest.raises(eosdb.ConfigError, match="got partition 3"):
        beyond.send("t", b"v", key=b"k")


def test_records_without_key_stay_together_until_a_batch_is_full(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=50)
    producer = db.producer(linger_ms=10_000, batch_size=1_000)
    futures = [producer.send("t", b"x" * 100) for _ in range(10)]
    producer.flush()
    assert len({future.result().partition for future in futures}) == 1


def test_an_unknown_partitioner_is_refused(db: eosdb.Database) -> None:
    with pytest.raises(eosdb.ConfigError, match="partitioner"):
        db.producer(partitioner="random")
