"""What the server needs of the internals of kafka-python, aiokafka and cramjam: a test for each use.

A test that fails with a new version of a library says what `eosdb.wire.borrowed` must do differently.
"""

from __future__ import annotations

import gc
import struct
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cramjam
import pytest
from kafka.protocol.admin.acl import DescribeAclsResponse
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
)
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochResponse
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.transaction import AddPartitionsToTxnRequest, InitProducerIdResponse
from kafka.protocol.schemas.fields.codecs.encode_buffer import EncodeBuffer

from eosdb import ProducerIdAndEpoch
from eosdb.wire import borrowed
from eosdb.wire.handlers import APIS
from tests.tidy.tree import ROOT, imports, modules

INTERNALS = ("aiokafka", "kafka.protocol.api_header", "kafka.protocol.schemas")


def test_one_module_touches_internals() -> None:
    touching = {
        name for name in modules() if any(target.startswith(INTERNALS) for target in imports(name))
    }
    assert touching == {"eosdb.wire.borrowed"}


def test_the_extra_pins_the_minor_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = project["optional-dependencies"]["serve"]
    assert [pin.partition(">=")[0] for pin in pins] == ["kafka-python", "aiokafka", "cramjam"]
    for pin in pins:
        least, most = (text.split(".")[:2] for text in pin.partition(">=")[2].split(",<"))
        assert [least[0], str(int(least[1]) + 1)] == most


def test_kafka_python_registers_the_response_of_each_api() -> None:
    assert borrowed.response_of(HeartbeatRequest.API_KEY)(version=0).API_KEY == 12
    assert borrowed.response_of(12)[4] is HeartbeatResponse[4]
    for key in APIS:
        assert key == borrowed.response_of(key).API_KEY


@pytest.mark.slow
def test_kafka_python_keeps_a_buffer_for_each_thread_and_the_server_keeps_none() -> None:
    def kept(encode: Callable[..., object]) -> int:
        """The bytes of the buffers that a thread has kept."""
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(encode, message, version=1).result() == expected
            gc.collect()
            buffers = [each for each in gc.get_objects() if type(each) is EncodeBuffer]
            return sum(len(each.buf) for each in buffers) - before

    topic = MetadataResponse.MetadataResponseTopic(name="t" * 30_000, partitions=[])
    message = MetadataResponse(topics=[topic] * 100)
    expected = message.encode(version=1)
    before = 0
    before = kept(borrowed.encoded)
    assert kept(MetadataResponse.encode) >= 3_000_000
    assert kept(borrowed.encoded) == 0


@pytest.mark.parametrize(
    ("request_type", "version", "body"),
    [
        (HeartbeatRequest, 0, struct.pack(">h1sih1s", 1, b"g", 7, 1, b"m")),
        (HeartbeatRequest, 4, b"\x02g" + struct.pack(">i", 7) + b"\x02m\0\0"),
    ],
)
def test_kafka_python_decodes_a_body_from_an_offset_and_says_where_it_ends(
    request_type: Any, version: int, body: bytes
) -> None:
    decode = borrowed.decoder(request_type, version)
    message, end = decode(memoryview(b"head" + body + b"tail"), 4)
    assert (message.group_id, message.generation_id, message.member_id) == ("g", 7, "m")
    assert end == 4 + len(body)


def test_kafka_python_has_the_schema_of_a_request_by_version() -> None:
    assert borrowed.schema(MetadataRequest, 0) == borrowed.Field(
        is_nullable=False,
        fields=(
            borrowed.Field(
                is_nullable=False,
                element=borrowed.Field(
                    is_nullable=False, fields=(borrowed.Field(False, "string"),)
                ),
            ),
        ),
    )
    (topics, *_) = borrowed.schema(MetadataRequest, 12).fields or ()
    assert topics.is_nullable
    assert topics.element is not None
    assert [f.type_name for f in topics.element.fields or ()] == ["uuid", "string"]
    *_, assignments = borrowed.schema(SyncGroupRequest, 5).fields or ()
    assert assignments.element is not None
    assert [f.type_name for f in assignments.element.fields or ()] == ["string", "bytes"]
    assert borrowed.schema(ApiVersionsRequest, 0).fields == ()


def test_kafka_python_gives_a_field_that_a_version_lacks_its_default() -> None:
    decode = borrowed.decoder(JoinGroupRequest, 0)
    body = struct.pack(">h1sih1sh1si", 1, b"g", 7, 1, b"m", 1, b"t", 0)
    message, _ = decode(memoryview(body), 0)
    assert (message.group_id, message.group_instance_id, message.rebalance_timeout_ms) == (
        "g", None, -1,
    )  # fmt: skip


def test_kafka_python_has_the_structures_of_a_response_and_what_they_are_called() -> None:
    commit: Any = OffsetCommitResponse
    topic = borrowed.structures(commit)["topics"]
    assert topic is commit.OffsetCommitResponseTopic
    assert borrowed.names_of_topic(topic) == ("name", "partitions", "partition_index")
    ends: Any = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    assert borrowed.names_of_topic(ends) == ("topic", "partitions", "partition")
    added: Any = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
    assert borrowed.names_of_topic(added) == ("name", "partitions", "")
    assert borrowed.shared(InitProducerIdResponse, ProducerIdAndEpoch) == {
        "producer_id",
        "producer_epoch",
    }
    assert borrowed.error_fields(commit) == ("", False)
    assert borrowed.error_fields(InitProducerIdResponse) == ("error_code", False)
    assert borrowed.error_fields(DescribeAclsResponse) == ("error_code", True)


def test_kafka_python_has_the_tags_of_tagged_fields() -> None:
    fetch = APIS[1]
    assert set(borrowed.schema(fetch.request, 12).tagged) == {0}
    assert borrowed.schema(fetch.request, 11).tagged == {}


def test_aiokafka_builds_and_reads_a_batch() -> None:
    builder = borrowed.DefaultRecordBatchBuilder(2, 0, 1, 5, 6, 7, 1_000)
    assert builder.append(0, 1_000, b"k", b"v", [("h", b"x")]) is not None
    assert builder.append(1, 1_001, None, bytes(1_000), []) is None, "no room: not appended"
    batch = builder.build()
    (record,) = borrowed.DefaultRecordBatch(batch)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 1_000)
    assert list(record.headers) == [("h", b"x")]
    (crc,) = struct.unpack_from(">I", batch, 17)
    assert borrowed.calc_crc32c(memoryview(batch)[21:]) == crc


def test_aiokafka_appends_the_first_record_whatever_its_size() -> None:
    builder = borrowed.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 0)
    assert builder.append(0, 1_000, None, bytes(100), []) is not None


def test_aiokafka_says_that_records_are_damaged() -> None:
    batch = borrowed.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
    batch.append(0, 1_000, b"k", b"v", [])
    damaged = batch.build()
    damaged[61] = 0x7E  # The length of the first record.
    with pytest.raises((borrowed.CorruptRecordException, ValueError, IndexError)):
        list(borrowed.DefaultRecordBatch(damaged))


@pytest.mark.parametrize("codec", [cramjam.lz4, cramjam.zstd])
def test_cramjam_says_that_a_buffer_is_too_small_and_no_other_failure_so(codec: Any) -> None:
    packed = bytes(codec.compress(bytes(1_000)))
    with pytest.raises(cramjam.DecompressionError) as too_small:
        codec.decompress_into(packed, bytearray(10))
    assert borrowed.is_buffer_too_small(too_small.value)
    with pytest.raises(cramjam.DecompressionError) as damaged:
        codec.decompress_into(b"no such stream", bytearray(1_000))
    assert not borrowed.is_buffer_too_small(damaged.value)
