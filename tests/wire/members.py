"""Consumers of every kind, as members of one group: the library's, and those that come over the wire."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import eosdb
from eosdb.wire.server import Server
from tests.waiting import eventually
from tests.wire.peer import PATIENCE_S

T = TypeVar("T")
Partitions = set[tuple[str, int]]
_POLL_MS: Final = 50
_SESSION_MS: Final = 30_000
_HEARTBEAT_MS: Final = 100


class GroupMember(Protocol):
    """One consumer of a group. Values that it has read are bytes."""

    name: str

    def poll(self) -> list[bytes]: ...

    def assignment(self) -> Partitions: ...

    def close(self) -> None: ...


class Library:
    """A consumer of this process, on the file itself."""

    name = "library"

    def __init__(self, db: eosdb.Database, group: str, strategy: str, **more: Any) -> None:
        self._consumer = db.consumer(
            group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            **more,
        )
        self._consumer.subscribe(["t"])

    def poll(self) -> list[bytes]:
        return [_bytes(record.value) for record in self._consumer.poll(_POLL_MS)]

    def assignment(self) -> Partitions:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Confluent:
    """librdkafka."""

    name = "confluent-kafka"

    def __init__(self, server: Server, group: str, strategy: str, **more: Any) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _HEARTBEAT_MS,
                **more,
            }
        )
        self._consumer.subscribe(["t"])

    def poll(self) -> list[bytes]:
        read = []
        for message in self._consumer.consume(100, _POLL_MS / 1000):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                read.append(message.value() or b"")
        return read

    def assignment(self) -> Partitions:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    name = "kafka-python"
    _assignors: Final = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def __init__(self, server: Server, group: str, strategy: str, **more: Any) -> None:
        made: Any = kafka.KafkaConsumer
        self._consumer = made(
            "t",
            bootstrap_servers=server.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[self._assignors[strategy]],
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            **more,
        )

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=_POLL_MS)
        return [record.value for records in found.values() for record in records]

    def assignment(self) -> Partitions:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    """In a loop of its own."""

    name = "aiokafka"
    _assignors: Final = {"range": AioRange, "roundrobin": AioRoundRobin}

    def __init__(self, server: Server, group: str, strategy: str, **more: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # The assignor keeps what it held in its class, so every member needs a class of its own.
        sticky = type("OwnSticky", (AioSticky,), {})
        settings: dict[str, Any] = {
            "bootstrap_servers": server.bootstrap_servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": [{**self._assignors, "sticky": sticky}[strategy]],
            "session_timeout_ms": _SESSION_MS,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
        }
        self._consumer: Any = self._run(self._make(settings | more))
        # It waits for the others to join again, which do so when they are polled.
        self._starting = self._begin(self._consumer.start())

    async def _make(self, settings: dict[str, Any]) -> Any:
        return aiokafka.AIOKafkaConsumer("t", **settings)

    def poll(self) -> list[bytes]:
        if not self._starting.done():
            return []
        self._starting.result()
        found = self._run(self._consumer.getmany(timeout_ms=_POLL_MS))
        return [record.value for records in found.values() for record in records]

    def assignment(self) -> Partitions:
        return {(tp.topic, tp.partition) for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._begin(call).result(PATIENCE_S)

    def _begin(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


class Reading:
    """A member that is polled in a thread of its own: some wait in a poll until the others have joined."""

    def __init__(self, member: GroupMember) -> None:
        self.name = member.name
        self.values: list[bytes] = []
        self.share: Partitions = set()
        self._member = member
        self._errors: list[BaseException] = []
        self._must_end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group. Raises what polling has raised."""
        self._must_end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.name
        self._member.close()
        self.check()

    def check(self) -> None:
        for error in self._errors:
            raise error

    def _read(self) -> None:
        try:
            while not self._must_end.is_set():
                self.values += self._member.poll()
                self.share = self._member.assignment()
        except BaseException as error:
            self._errors.append(error)


def join(kind: str, db: eosdb.Database, server: Server, group: str, strategy: str) -> Reading:
    if kind == "library":
        return Reading(Library(db, group, strategy))
    classes = {of.name: of for of in (Confluent, KafkaPython, AioKafka)}
    return Reading(classes[kind](server, group, strategy))


def settle(members: Sequence[Reading], partitions: int) -> None:
    """Wait until the members share the partitions of "t" evenly."""
    everything = {("t", index) for index in range(partitions)}
    fewest = partitions // len(members)

    def is_even() -> bool:
        for member in members:
            member.check()
        shares = [member.share for member in members]
        return (
            sum(map(len, shares)) == partitions
            and set().union(*shares) == everything
            and min(map(len, shares)) >= fewest
        )

    eventually(is_even)
