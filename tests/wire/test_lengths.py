"""Lengths in a Fetch answer, which is encoded by hand, are those that kafka-python decodes."""

from __future__ import annotations

import struct

from kafka.protocol.consumer.fetch import FetchResponse

from eosdb.model.fetched import AbortedTransaction
from eosdb.wire.messages import FetchAnswer, FetchedPartition, _compact
from tests.cases import each

AROUND = [0, 1, 125, 126, 127, 128, 129, 16_381, 16_382, 16_383, 16_384, 2_097_150, 2_097_151]


@each("count", [-1, *AROUND])
def test_a_compact_length_is_one_more_in_seven_bits_each(count: int) -> None:
    value = shift = 0
    encoded = _compact(count)
    for byte in encoded[:-1]:
        assert byte > 127
        value, shift = value | (byte & 127) << shift, shift + 7
    assert encoded[-1] < 128
    assert value | encoded[-1] << shift == count + 1


@each("version", [4, 5, 11, 12])
@each("count", [0, 126, 127, 128])
def test_any_number_of_aborted_transactions_and_bytes_is_decoded(version: int, count: int) -> None:
    aborted = [AbortedTransaction(i, i, i, i) for i in range(count)]
    part = FetchedPartition(0, 0, 9, 8, 7, aborted, [b"x" * count])
    pieces = FetchAnswer({"t": [part, part]}).encode(version)
    body = b"".join(pieces)
    flexible = version >= 12
    header = struct.pack(">i", 1) + (b"\0" if flexible else b"")
    answer = FetchResponse.decode(header + body, version=version, header=True, framed=False)
    (topic,) = answer.responses
    assert len(topic.partitions) == 2
    for found in topic.partitions:
        assert (found.high_watermark, found.last_stable_offset) == (9, 8)
        if version >= 5:
            assert found.log_start_offset == 7
        assert [gone.producer_id for gone in found.aborted_transactions or ()] == [*range(count)]
        assert len(found.records or b"") == count
