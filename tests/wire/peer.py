"""A client that asks in whatever version a test wants, and sees every field of the answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

PATIENCE_S = 120.0
"""For whatever a busy machine takes its time for."""


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
    session_id: int = 0,
) -> FetchRequest:
    asked = FetchRequest.FetchTopic
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 << 20,
        isolation_level=int(committed),
        session_id=session_id,
        session_epoch=0 if session_id else -1,
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


def fetched(answer: FetchResponse, index: int = 0) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of one partition of the answer."""
    (topic,) = answer.responses
    return records(topic.partitions[index].records)


def records(data: Any) -> list[tuple[int, bytes | None]]:
    found = []
    for one in split(bytes(data)):
        reader = DefaultRecordBatch(one)
        assert reader.validate_crc()
        found += [(record.offset, record.value) for record in reader]
    return found


def split(data: bytes) -> list[bytes]:
    """The batches one by one."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        found.append(data[at : at + 12 + length])
        at += 12 + length
    return found


def next_offset(data: Any) -> int:
    """Where a consumer goes on after these batches."""
    return int(DefaultRecordBatch(split(bytes(data))[-1]).next_offset)
