"""Requests that are not what they announce are refused before anything is made of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest

from eosdb.wire import messages
from eosdb.wire.messages import MalformedMessageError
from tests.cases import each
from tests.wire.raw import header

HUGE_VARINT = b"\xff\xff\xff\xff\x07"
ENDLESS_VARINT = b"\xff" * 1_000_000


def decode(request: Any, version: int, body: bytes) -> Any:
    flexible = request.flexible_version_q(version)
    frame = bytearray(header(request.API_KEY, version, flexible=flexible) + body)
    return messages.decode_body(request, messages.decode_header(frame), frame)


@each(
    ("request_type", "version", "body", "reason"),
    [
        (MetadataRequest, 0, struct.pack(">i", 2**31 - 1), "a length of 2147483647 with 0 bytes"),
        (MetadataRequest, 0, struct.pack(">i", -1), "null in a required field"),
        (MetadataRequest, 1, struct.pack(">i", -2), "a length of -2"),
        (MetadataRequest, 0, struct.pack(">ih", 1, -1), "null in a required field"),
        (MetadataRequest, 0, struct.pack(">ih", 1, 5) + b"four", "a length of 5 with 4 bytes"),
        (MetadataRequest, 0, struct.pack(">ih", 1, 2) + b"\xff\xfe", "utf-8"),
        (MetadataRequest, 9, HUGE_VARINT, "a length of 2147483646"),
        (MetadataRequest, 9, ENDLESS_VARINT, "a varint of more than five bytes"),
        (MetadataRequest, 9, b"\x02" + ENDLESS_VARINT, "a varint of more than five bytes"),
        (MetadataRequest, 9, b"\x02\x02t\x01" + HUGE_VARINT, "index out of range"),
        (MetadataRequest, 9, b"\x02\x02t\x01\x63" + HUGE_VARINT, "a tagged field of 2147483647"),
        (MetadataRequest, 9, b"\x02\x02t" + HUGE_VARINT + bytes(20), "more than 100000 elements"),
        (ProduceRequest, 3, struct.pack(">hhii", -1, 1, 1, -1), "null in a required field"),
        (ProduceRequest, 3, struct.pack(">hh", -1, 1), "unpack_from requires"),
    ],
)
def test_a_request_that_is_not_what_it_announces_is_refused(
    request_type: Any, version: int, body: bytes, reason: str
) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        decode(request_type, version, body)


def test_nulls_stand_where_the_schema_has_them() -> None:
    assert decode(MetadataRequest, 1, struct.pack(">i", -1)).topics is None
    assert decode(MetadataRequest, 12, b"\0\0\0\0").topics is None


@pytest.mark.slow
def test_more_elements_than_a_request_may_have_are_refused_before_they_are_made() -> None:
    body = struct.pack(">i", 100_001) + b"\0\0" * 100_001
    with pytest.raises(MalformedMessageError, match="more than 100000 elements"):
        decode(MetadataRequest, 0, body)
    body = struct.pack(">i", 100_000) + b"\0\0" * 100_000
    assert len(decode(MetadataRequest, 0, body).topics) == 100_000


def test_elements_are_counted_over_all_arrays() -> None:
    topics = struct.pack(">h", 0) + struct.pack(">ihi", 1, 1, 60_000) + bytes(240_000)
    body = struct.pack(">i", 2) + topics * 2
    with pytest.raises(MalformedMessageError, match="more than 100000 elements"):
        decode(CreateTopicsRequest, 2, body)


def test_unknown_tagged_fields_are_skipped_and_known_ones_read() -> None:
    topic = b"\x02t\x02\x07\x03abc\x09\0"
    assert decode(MetadataRequest, 9, b"\x02" + topic + b"\0\0\0\0").topics[0].name == "t"
    fixed = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, 0)
    known = decode(FetchRequest, 12, fixed + b"\x01\x01\x01\x01\0\x08\x08cluster")
    assert known.cluster_id == "cluster"
    with pytest.raises(MalformedMessageError, match="tagged field 0 ends at byte"):
        decode(FetchRequest, 12, fixed + b"\x01\x01\x01\x01\0\x09\x08cluster!")


def test_a_tagged_field_has_none_inside() -> None:
    """The replica state of Fetch: kafka-python stops there, and without asserts would lose its place."""
    fixed = struct.pack(">iiibii", 0, 1, 1, 0, 0, 0) + b"\x01\x01\x01"
    replica = struct.pack(">iq", 3, 9)
    request = decode(FetchRequest, 17, fixed + b"\x01\x01\x0d" + replica + b"\0")
    assert request.replica_state.replica_epoch == 9
    with pytest.raises(MalformedMessageError, match="tagged fields inside a tagged field"):
        decode(FetchRequest, 17, fixed + b"\x01\x01\x10" + replica + b"\x01\x07\x01x")


def test_what_the_decoder_copies_for_tagged_fields_is_bounded() -> None:
    """With 2,000 topics of a tagged field each in a MiB it would copy a GiB."""
    topic = b"\x02t\x01\x07\x83\x04" + b"x" * 515
    with pytest.raises(MalformedMessageError, match="too many tagged fields"):
        decode(MetadataRequest, 9, b"\xd1\x0f" + topic * 2_000 + b"\0\0\0\0")
    assert len(decode(MetadataRequest, 9, b"\xc9\x01" + topic * 200 + b"\0\0\0\0").topics) == 200


def test_a_string_is_no_longer_than_kafkas() -> None:
    for size, length in ((32_767, b"\x80\x80\x02"), (32_768, b"\x81\x80\x02")):
        body = b"\x02" + length + b"x" * size + b"\0" + b"\0\0\0\0"
        if size == 32_767:
            assert len(decode(MetadataRequest, 9, body).topics[0].name) == size
        else:
            with pytest.raises(MalformedMessageError, match="a string of 32768 bytes"):
                decode(MetadataRequest, 9, body)


def test_every_element_has_a_byte_so_that_counts_are_held_against_the_bytes_left() -> None:
    keys = b"\0" + bytes([31]) + b"\x01" * 30 + b"\0"
    assert len(decode(FindCoordinatorRequest, 4, keys).coordinator_keys) == 30
    with pytest.raises(MalformedMessageError, match="a length of 31 with 30 bytes"):
        decode(FindCoordinatorRequest, 4, b"\0" + bytes([32]) + b"\x01" * 29 + b"\0")


def test_a_varint_has_five_bytes_at_most() -> None:
    assert messages.unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(ValueError, match="more than five"):
        messages.unsigned_varint(b"\xff\xff\xff\xff\xff\x01", 0)
