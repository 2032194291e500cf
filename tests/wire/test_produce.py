"""Produce: what a batch may be, what each partition is answered, and what old clients are told."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.util import calc_crc32c

import eosdb
from eosdb import TopicPartition
from tests.cases import each
from tests.wire.peer import Peer, batch, produce, produced

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4


def values(db: eosdb.Database, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in db.broker.fetch(TopicPartition("t", partition), 0).records]


def with_crc(data: bytes) -> bytes:
    """The batch with the checksum that fits it."""
    return data[:17] + struct.pack(">I", calc_crc32c(data[21:])) + data[21:]


@pytest.mark.parametrize("version", range(3, 13))
def test_a_batch_is_stored_by_every_version(peer: Peer, db: eosdb.Database, version: int) -> None:
    assert produced(peer.ask(produce({("t", 0): batch(b"a", b"b")}), version)) == [(0, 0)]
    assert produced(peer.ask(produce({("t", 0): batch(b"c")}), version)) == [(0, 2)]
    assert values(db) == [b"a", b"b", b"c"]


def test_a_client_cannot_write_where_scheduled_records_wait(peer: Peer, db: eosdb.Database) -> None:
    db.producer().send("t", "later", deliver_at=2**50).result()
    asked = {("t", -1): batch(b"a"), ("t", 0): batch(b"b")}
    assert sorted(produced(peer.ask(produce(asked), 9))) == [(0, 0), (3, -1)]
    assert [one.value for one in db.admin.list_scheduled()] == [b"later"]


def test_each_partition_has_its_own_answer(peer: Peer, db: eosdb.Database) -> None:
    asked = {("t", 0): batch(b"a"), ("t", 9): batch(b"b"), ("gone", 0): batch(b"c")}
    assert produced(peer.ask(produce(asked), 9)) == [(0, 0), (3, -1), (3, -1)]
    assert values(db) == [b"a"]


@pytest.mark.parametrize("codec", [_GZIP, _SNAPPY, _LZ4, _ZSTD])
def test_every_compression_is_read(peer: Peer, db: eosdb.Database, codec: int) -> None:
    many = [b"%d" % i * 50 for i in range(100)]
    assert produced(peer.ask(produce({("t", 0): batch(*many, codec=codec)}), 9)) == [(0, 0)]
    assert values(db) == many


def test_zstd_is_refused_to_a_version_from_before_it(peer: Peer, db: eosdb.Database) -> None:
    asked = produce({("t", 0): batch(b"a" * 200, codec=_ZSTD)})
    assert produced(peer.ask(asked, 6)) == [(76, -1)]
    assert values(db) == []


def compressed(codec: int, records: bytes) -> bytes:
    """A batch of one record whose records are these bytes."""
    header = bytearray(batch(b"x")[:61])
    struct.pack_into(">h", header, 21, codec)
    struct.pack_into(">i", header, 8, len(header) + len(records) - 12)
    return with_crc(bytes(header) + records)


@each("codec", [_GZIP, _SNAPPY, _LZ4, _ZSTD, 5, 7])
def test_what_cannot_be_decompressed_is_refused(peer: Peer, codec: int) -> None:
    ((code, _),) = produced(peer.ask(produce({("t", 0): compressed(codec, b"\x17" * 9)}), 9))
    assert code == (76 if codec > _ZSTD else 87)


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    return with_crc(bytes(out))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 87),
        (batch(b"a")[:40], 87),
        (batch(b"a") + batch(b"b"), 87),
        (batch(b"a")[:-1] + b"?", 2),
        (changed(batch(b"a"), 16, ">b", 1), 87),
        (changed(batch(b"a"), 21, ">h", 0x20), 87),
        (changed(batch(b"a"), 23, ">i", 5), 87),
        (changed(batch(b"a"), 57, ">i", 0), 87),
        (changed(batch(b"a"), 57, ">i", 2_000_000_000), 87),
        (changed(changed(batch(b"a", b"b"), 57, ">i", 1), 23, ">i", 0), 87),
    ],
    ids=[
        "no bytes", "half a header", "two batches", "damaged on its way", "an older magic",
        "a control batch", "a gap in the offsets", "no records", "records that are not there",
        "records beyond the count",
    ],
)  # fmt: skip
def test_what_is_no_producers_batch_is_refused(
    peer: Peer, db: eosdb.Database, data: bytes, code: int
) -> None:
    assert produced(peer.ask(produce({("t", 0): data, ("t", 1): batch(b"b")}), 9)) == [
        (code, -1),
        (0, 0),
    ]
    assert values(db) == []


def test_max_message_bytes_counts_what_was_sent(peer: Peer, db: eosdb.Database) -> None:
    db.admin.alter_topic_config("t", {"max.message.bytes": 1_000})
    well_compressed = batch(b"a" * 10_000, codec=_GZIP)
    assert produced(peer.ask(produce({("t", 0): well_compressed}), 9)) == [(0, 0)]
    assert produced(peer.ask(produce({("t", 0): batch(b"a" * 1_000)}), 9)) == [(10, -1)]


def test_acks_0_has_no_answer(peer: Peer, db: eosdb.Database) -> None:
    peer.send(produce({("t", 0): batch(b"a")}, acks=0), 9)
    assert produced(peer.ask(produce({("t", 0): batch(b"b")}), 9)) == [(0, 1)]
    assert values(db) == [b"a", b"b"]


def test_an_error_under_acks_0_closes_the_connection(peer: Peer) -> None:
    peer.send(produce({("t", 9): batch(b"a")}, acks=0), 9)
    assert peer.socket.recv(1) == b""


def test_acks_that_do_not_exist_are_refused(peer: Peer) -> None:
    assert produced(peer.ask(produce({("t", 0): batch(b"a")}, acks=2), 9)) == [(21, -1)]


def test_a_partition_that_comes_twice_is_refused(peer: Peer, db: eosdb.Database) -> None:
    asked = produce({("t", 0): batch(b"a")})
    asked.topic_data += produce({("t", 0): batch(b"b")}).topic_data
    assert produced(peer.ask(asked, 9)) == [(87, -1), (87, -1)]
    assert values(db) == []


def test_keys_headers_and_times_arrive(peer: Peer, db: eosdb.Database) -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 5, b"k", None, [("h", b"1"), ("h", None)])
    builder.append(1, 7, None, b"", [])
    peer.ask(produce({("t", 0): bytes(builder.build())}), 9)
    found = db.broker.fetch(TopicPartition("t", 0), 0).records
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == [
        (5, b"k", None, (("h", b"1"), ("h", None))),
        (7, None, b"", ()),
    ]
