"""What record batches may become when they are read, and the memory that requests share."""

from __future__ import annotations

import functools
import gzip
import struct
import threading
from collections.abc import Callable

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from eosdb.errors import EosdbError, InvalidRecordError, MessageTooLargeError
from eosdb.wire import batches
from eosdb.wire.limits import DECOMPRESSED_BYTES, RECORDS, Allowance, Memory
from eosdb.wire.parking import REAL_TIME
from tests.cases import each
from tests.wire.raw import eventually

MIB = 1_048_576
CODECS: dict[int, Callable[[bytes], bytes]] = {
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}


@functools.cache
def zeros(codec: int, size: int) -> bytes:
    """So many, compressed."""
    return CODECS[codec](bytes(size))


def allowance(memory: Memory | None = None) -> Allowance:
    return Allowance((memory or Memory(512 * MIB)).lease())


def xerial(data: bytes) -> bytes:
    """Java's stream of blocks."""
    blocks = [data[at : at + 32_768] for at in range(0, len(data), 32_768)]
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in packed)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_not_decompressed_beyond_the_bound(codec: int) -> None:
    bomb = zeros(codec, DECOMPRESSED_BYTES + 1)
    with pytest.raises(MessageTooLargeError, match="when they are decompressed"):
        batches.decompress(codec, bomb, 9, allowance())


@pytest.mark.slow
def test_a_bomb_of_many_blocks_is_not_decompressed_beyond_the_bound() -> None:
    with pytest.raises(MessageTooLargeError):
        batches.decompress(2, xerial(bytes(DECOMPRESSED_BYTES + 1)), 9, allowance())
    endless = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + struct.pack(">iB", 1, 0) * 100_001
    with pytest.raises(InvalidRecordError, match="more than 100000 blocks"):
        batches.decompress(2, endless, 9, allowance())


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_one_for_all_batches_of_a_request(codec: int) -> None:
    left = allowance()
    part = zeros(codec, 40 * MIB)
    for _ in range(2):
        assert len(batches.decompress(codec, part, 9, left)) == 40 * MIB
    with pytest.raises(MessageTooLargeError):
        batches.decompress(codec, part, 9, left)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_behind_a_bomb_nothing_of_the_request_is_decompressed(codec: int) -> None:
    """A request may have thousands of them."""
    left = allowance()
    for data in (zeros(codec, DECOMPRESSED_BYTES + 1), CODECS[codec](b"v")):
        with pytest.raises(MessageTooLargeError):
            batches.decompress(codec, data, 9, left)


@each("codec", CODECS)
@each("size", [0, 1, 100, 65_536, 3_000_000])
def test_everything_within_the_bound_comes_out_as_it_went_in(codec: int, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert batches.decompress(codec, CODECS[codec](data), 9, allowance()) == data
    assert batches.decompress(2, xerial(data), 9, allowance()) == data


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_bytes_are_an_error_of_kafkas(codec: int) -> None:
    packed = CODECS[codec](bytes(range(256)) * 20)
    for at in range(0, len(packed), 7):
        damaged = bytearray(packed)
        damaged[at] ^= 0xFF
        for data in (bytes(damaged), packed[:at]):
            try:
                batches.decompress(codec, data, 9, allowance())
            except EosdbError as error:
                assert isinstance(error, InvalidRecordError | MessageTooLargeError), repr(error)


def test_what_batches_decompress_to_is_taken_of_the_common_memory_and_given_back() -> None:
    memory = Memory(256 * MIB)
    lease = memory.lease()
    batches.decompress(4, CODECS[4](bytes(10 * MIB)), 9, Allowance(lease))
    assert memory.used == 10 * MIB
    lease.release()
    assert memory.used == 0


def batch(count: int, *, says: int | None = None) -> bytes:
    """A batch of the smallest records, which `says` how many they are."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**31 - 1)
    for offset in range(min(count, 100)):
        builder.append(offset, 0, None, None, [])
    data = bytearray(builder.build())
    data += data[61:68] * (count - min(count, 100))
    struct.pack_into(">i", data, 8, len(data) - 12)
    says = count if says is None else says
    struct.pack_into(">i", data, 23, says - 1)
    struct.pack_into(">i", data, 57, says)
    struct.pack_into(">I", data, 17, calc_crc32c(memoryview(data)[21:]))
    return bytes(data)


def test_more_records_than_a_request_may_have_are_refused_before_they_are_read() -> None:
    with pytest.raises(MessageTooLargeError, match=f"more than {RECORDS} records"):
        batches.decode(batch(RECORDS + 1), 9, allowance())


@pytest.mark.parametrize("says", [11, 12, 2**31 - 1])
def test_more_records_than_the_bytes_have_room_for_are_refused(says: int) -> None:
    with pytest.raises(InvalidRecordError):
        batches.decode(batch(10, says=says), 9, allowance())


@pytest.mark.parametrize("says", [0, -1, -(2**31) + 1])
def test_a_batch_of_no_records_is_refused(says: int) -> None:
    with pytest.raises(InvalidRecordError):
        batches.decode(batch(0, says=says), 9, allowance())


def test_who_finds_no_room_waits_for_as_long_as_it_takes() -> None:
    memory = Memory(40 * MIB)
    one, two, three = memory.lease(), memory.lease(), memory.lease()
    one.take(29 * MIB)
    two.take(5 * MIB)  # One may go beyond, so that somebody can go on.
    waiting = threading.Thread(target=lambda: three.take(3 * MIB))
    waiting.start()
    assert eventually(lambda: one.keeps_others and two.keeps_others, REAL_TIME)
    one.release()
    two.release()
    waiting.join(60)
    assert not waiting.is_alive()
    assert memory.used == three.size == 3 * MIB


def test_small_requests_have_room_of_their_own() -> None:
    memory = Memory(4 * MIB)
    large, beyond, small = memory.lease(), memory.lease(), memory.lease()
    large.take(3 * MIB, of_request=90 * MIB)
    beyond.take(1_000, of_request=90 * MIB)
    small.take(MIB, of_request=MIB)
    small.take(1_000)
    assert (memory.large.used, memory.small.used) == (3 * MIB + 1_000, MIB + 1_000)
    for lease in (large, beyond, small):
        lease.release()
    assert (memory.large.used, memory.small.used) == (0, 0)


def test_what_a_small_request_becomes_is_of_its_room_up_to_a_share() -> None:
    memory = Memory(64 * MIB)
    lease = memory.lease()
    for _ in range(5):
        lease.take(MIB)
    assert (memory.large.used, memory.small.used) == (3 * MIB, 2 * MIB)
    lease.give_back(4 * MIB)
    assert (memory.large.used, memory.small.used) == (0, MIB)


def test_who_waits_for_room_is_woken_when_the_server_ends() -> None:
    memory = Memory(4 * MIB)
    one, two, three = memory.lease(), memory.lease(), memory.lease()
    one.take(5 * MIB)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            three.take(5 * MIB)
        except ConnectionAbortedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert eventually(lambda: one.keeps_others, REAL_TIME)
    assert not two.keeps_others
    memory.close()
    waiting.join(60)
    assert len(errors) == 1


def test_a_share_leaves_something_for_the_others() -> None:
    memory = Memory(1_067)
    leases = [memory.lease() for _ in range(5)]
    assert [lease.share(1_000, 1) for lease in leases] == [100, 87, 76, 67, 58]
    assert memory.lease().share(10, 1) == 10


def test_what_cannot_be_decompressed_takes_nothing() -> None:
    memory = Memory(256 * MIB)
    lease = memory.lease()
    with pytest.raises(InvalidRecordError):
        batches.decompress(4, b"no zstd", 9, Allowance(lease))
    assert memory.used == 0
