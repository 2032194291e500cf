"""A client that asks in whatever version a test wants, and sees every field of the answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

Message = TypeVar("Message")
PATIENCE_S = 120.0
"""For whatever a busy machine takes its time for."""


def asking(kind: type[Message], **fields: Any) -> Message:
    """A request of the kind, whose structures are written as dicts, and lists of them."""

    def made(value: Any, field: Any) -> Any:
        if isinstance(value, list) and field.is_struct_array():
            return [made(one, field) for one in value]
        if not isinstance(value, dict):
            return value
        return field.data_class(**filled(value, field.fields))

    def filled(values: dict[str, Any], among: Any) -> dict[str, Any]:
        return {name: made(value, among[name]) for name, value in values.items()}

    of: Any = kind
    return kind(**filled(fields, of.fields))


class Listening(Protocol):
    """A server, or its address."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Address(NamedTuple):
    host: str
    port: int


class Peer:
    """One connection to a server. A context manager that closes it."""

    def __init__(self, server: Listening) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout=PATIENCE_S)
        self._asked = 0

    def ask(self, request: ApiMessage, version: int) -> Any:
        """The answer to the request; raises ConnectionError when the server closes the connection."""
        self.send(request, version)
        return self.answer(request, version)

    def send(self, request: ApiMessage, version: int) -> None:
        self._asked += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._asked, client_id="peer")
        self.socket.sendall(request.encode(version=version, header=True, framed=True))

    def answer(self, request: ApiMessage, version: int) -> Any:
        frame = self._read(*struct.unpack(">i", self._read(4)))
        request.with_header()
        kind = request.header.get_response_class()[None]
        found = kind.decode(frame, version=version, header=True)
        assert found.header.correlation_id == self._asked
        return found

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the server has closed the connection")
            data += more
        return data


def batch(
    *values: bytes,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
    time_ms: int = 1_700_000_000_000,
) -> bytes:
    """Records without keys, as a producer sends them."""
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), *producer, sequence, 1 << 20)
    for i, value in enumerate(values):
        builder.append(i, time_ms, None, value, [])
    return bytes(builder.build())


def produce(
    batches: dict[tuple[str, int], bytes],
    *,
    transactional_id: str | None = None,
    acks: int = -1,
) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            topic(
                name=name,
                partition_data=[topic.PartitionProduceData(index=index, records=records)],
            )
            for (name, index), records in batches.items()
        ],
    )


def produced(answer: ProduceResponse) -> list[tuple[int, int]]:
    """The error and base offset of each partition."""
    return [(p.error_code, p.base_offset) for t in answer.responses for p in t.partition_responses]


def fetch(
    offset: int,
    *,
    topic: str = "t",
    partitions: Sequence[int] = (0,),
    committed: bool = True,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    all_bytes: int = 50 << 20,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    asked = FetchRequest.FetchTopic
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=all_bytes,
        isolation_level=int(committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            asked(
                topic=topic,
                partitions=[
                    asked.FetchPartition(
                        partition=index,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        partition_max_bytes=max_bytes,
                    )
                    for index in partitions
                ],
            )
        ],
    )


class Batch(NamedTuple):
    """What the header of a stored batch says, and its records with their offsets."""

    producer: tuple[int, int]
    sequence: int
    is_transactional: bool
    is_control: bool
    records: list[tuple[int, bytes | None]]


def part_of(answer: FetchResponse, index: int = 0) -> Any:
    """One partition of the answer."""
    (topic,) = answer.responses
    return topic.partitions[index]


def stored(answer: FetchResponse, index: int = 0) -> list[Batch]:
    """The batches of one partition of the answer. Of a control record the value is COMMIT or ABORT."""
    found = []
    for one in split(bytes(part_of(answer, index).records)):
        batch = DefaultRecordBatch(one)
        assert batch.validate_crc()
        records = [(record.offset, record.value) for record in batch]
        if batch.is_control_batch:
            (record,) = DefaultRecordBatch(one)
            assert record.value == bytes(6)
            records = [(record.offset, {bytes(4): b"ABORT", b"\0\0\0\1": b"COMMIT"}[record.key])]
        found.append(
            Batch(
                (batch.producer_id, batch.producer_epoch), batch.base_sequence,
                batch.is_transactional, batch.is_control_batch, records,
            )
        )  # fmt: skip
    return found


def fetched(answer: FetchResponse, index: int = 0) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of one partition of the answer, as Kafka's consumer hands them out:
    without markers, and without what the aborted transactions wrote that the answer names."""
    listed = part_of(answer, index).aborted_transactions or []
    coming = sorted((one.first_offset, one.producer_id) for one in listed)
    aborted: set[int] = set()
    found = []
    for batch in stored(answer, index):
        while coming and coming[0][0] <= batch.records[-1][0]:
            aborted.add(coming.pop(0)[1])
        producer_id = batch.producer[0]
        if batch.is_control:
            if batch.records[0][1] == b"ABORT":
                aborted.discard(producer_id)
        elif not (batch.is_transactional and producer_id in aborted):
            found += batch.records
    return found


def split(data: bytes) -> list[bytes]:
    """The batches one by one."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        found.append(data[at : at + 12 + length])
        at += 12 + length
    return found


def next_offset(answer: FetchResponse, index: int = 0) -> int:
    """Where a reader goes on that goes by records and control records alone, as librdkafka does."""
    return stored(answer, index)[-1].records[-1][0] + 1
