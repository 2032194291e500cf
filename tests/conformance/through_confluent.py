"""A cluster that confluent-kafka reaches at an address, as a system under test.

Every wait has an end, so that nothing can hang.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from typing import Final

import confluent_kafka as ck

from tests.conformance import confluent
from tests.conformance.double import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TOPIC,
    Identity,
    Producer,
    Requests,
    Settings,
)
from tests.conformance.raw_requests import RawRequests

TIMEOUT_S: Final = 8.0
_UNSTABLE_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.1
_STATISTICS_MS: Final = 50
QUIET: Final = {"log_level": 0}


class ThroughConfluent(ABC):
    """`Double` on a cluster of one broker. Who inherits it starts the cluster, and ends it."""

    def __init__(self) -> None:
        self._producers: list[ck.Producer] = []
        self._requests: list[RawRequests] = []
        self._begin()

    @abstractmethod
    def start(self) -> str:
        """The address of the cluster."""

    @abstractmethod
    def end(self) -> None:
        """As a crash does."""

    @abstractmethod
    def clean_up(self) -> None:
        """Remove what it has stored; it is not started again."""

    def producer(self, settings: Settings) -> Producer:
        made = _ConfluentProducer(self._address, settings)
        self._producers.append(made.client)
        return made

    def read(self, partition: int = 0, isolation: str = READ_COMMITTED) -> list[str]:
        with self._consumer(isolation) as consumer:
            consumer.assign([ck.TopicPartition(TOPIC, partition, ck.OFFSET_BEGINNING)])
            return _values(consumer)

    def end_offset(self, isolation: str) -> int:
        with self._consumer(isolation) as consumer:
            _, end = consumer.get_watermark_offsets(_partition_0(), timeout=TIMEOUT_S)
        return int(end)

    def offset_at(self, timestamp: int, isolation: str) -> int | None:
        with self._consumer(isolation) as consumer:
            found = consumer.offsets_for_times([_partition_0(timestamp)], timeout=TIMEOUT_S)
        return _offset(found)

    def commit_offset(self, group: str, offset: int) -> None:
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.commit(offsets=[_partition_0(offset)], asynchronous=False)

    def committed_offset(self, group: str, *, stable: bool = False) -> int | None:
        """A read_committed consumer asks for stable offsets, and waits for them (KIP-447)."""
        isolation, timeout = (
            (READ_COMMITTED, _UNSTABLE_TIMEOUT_S) if stable else (READ_UNCOMMITTED, TIMEOUT_S)
        )
        with self._consumer(isolation, group) as consumer:
            return _offset(consumer.committed([_partition_0()], timeout=timeout))

    def read_on(self, group: str) -> list[str]:
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.assign([_partition_0(ck.OFFSET_STORED)])
            values = _values(consumer)
            if values:
                consumer.commit(asynchronous=False)
        return values

    def member(self, group: str) -> object:
        with self._consumer(READ_COMMITTED, group) as consumer:
            return consumer.consumer_group_metadata()

    def departed_member(self, group: str) -> object:
        """Of a consumer that has really joined, and left."""
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.subscribe([TOPIC])
            deadline = time.monotonic() + TIMEOUT_S
            while not consumer.assignment():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no assignment within {TIMEOUT_S:.0f} s")
                consumer.poll(_POLL_S)
            return consumer.consumer_group_metadata()

    def requests(self) -> Requests:
        host, port = self._address.rsplit(":", 1)
        self._requests.append(RawRequests(host, int(port)))
        return self._requests[-1]

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def restart(self) -> None:
        self._forget()
        self.end()
        self._begin()

    def error_name(self, error: Exception) -> str:
        return confluent.error_name(error)

    def close(self) -> None:
        self._forget()
        self.end()
        self.clean_up()

    def _begin(self) -> None:
        self._address = self.start()
        # Asking for the topic creates it.
        ck.Producer({"bootstrap.servers": self._address, **QUIET}).list_topics(TOPIC, TIMEOUT_S)

    def _forget(self) -> None:
        for producer in self._producers:
            producer.purge()
        self._producers.clear()
        for requests in self._requests:
            requests.close()
        self._requests.clear()

    def _consumer(self, isolation: str, group: str = "reader") -> ck.Consumer:
        return ck.Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": group,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "socket.timeout.ms": int(TIMEOUT_S * 1000),
                **QUIET,
            }
        )


class _ConfluentProducer:
    def __init__(self, address: str, settings: Settings) -> None:
        self._statistics: list[str] = []
        self.client = ck.Producer(
            {
                "bootstrap.servers": address,
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._statistics.append,
                **confluent.producer_config(settings),
                **QUIET,
            }
        )

    def init(self) -> None:
        self.client.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.client.begin_transaction()

    def send(self, value: str, partition: int = 0, timestamp: int | None = None) -> None:
        answers: list[ck.KafkaError | None] = []
        self.client.produce(
            TOPIC,
            value,
            partition=partition,
            timestamp=timestamp or 0,
            on_delivery=lambda error, _: answers.append(error),
        )
        deadline = time.monotonic() + TIMEOUT_S
        # `flush` raises SystemError where a fatal error is reported meanwhile.
        while not answers and time.monotonic() < deadline:
            self.client.poll(_POLL_S)
        if not answers:
            raise TimeoutError(f"no delivery report within {TIMEOUT_S:.0f} s")
        if answers[0] is not None:
            raise ck.KafkaException(answers[0])

    def send_offset(self, offset: int, member: object) -> None:
        self.client.send_offsets_to_transaction([_partition_0(offset)], member, TIMEOUT_S)

    def commit(self) -> None:
        self.client.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.client.abort_transaction(TIMEOUT_S)

    def identity(self) -> Identity:
        """As the client's statistics tell it, those left from before thrown away."""
        self.client.poll(2 * _STATISTICS_MS / 1000)
        self._statistics.clear()
        deadline = time.monotonic() + TIMEOUT_S
        while not self._statistics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no statistics within {TIMEOUT_S:.0f} s")
            self.client.poll(_POLL_S)
        known = json.loads(self._statistics[-1])["eos"]
        return Identity(known["producer_id"], known["producer_epoch"])


def _partition_0(offset: int = ck.OFFSET_INVALID) -> ck.TopicPartition:
    return ck.TopicPartition(TOPIC, 0, offset)


def _offset(found: list[ck.TopicPartition]) -> int | None:
    return found[0].offset if found[0].offset >= 0 else None


def _values(consumer: ck.Consumer) -> list[str]:
    """Everything up to the end of the assigned partition."""
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            return values
        else:
            raise ck.KafkaException(error)
    raise TimeoutError(f"no end of the partition within {TIMEOUT_S:.0f} s")
