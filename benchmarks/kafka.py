"""Kafka, by confluent-kafka: librdkafka's mock cluster, or a broker that EOSDB_BENCH_KAFKA=host:port names.

A broker on this machine also tells its CPU time and its version. Which process it is, its port tells.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.raw import VALUE

_VARIABLE: Final = "EOSDB_BENCH_KAFKA"
_LISTENS: Final = "0A"
_FLUSH: Final = "log.flush.interval.messages"


def absent() -> str | None:
    """Why no real broker can take part; None when one can."""
    if _VARIABLE not in os.environ:
        return f"{_VARIABLE} names no broker"
    if not find_spec("confluent_kafka"):
        return "not installed"
    try:
        real().admin.list_topics(timeout=30)
    except Exception as error:
        return f"{os.environ[_VARIABLE]} cannot be used: {type(error).__name__} {error}"
    return None


def real() -> Cluster:
    """The broker that the environment names."""
    return Cluster(os.environ[_VARIABLE])


def description() -> str:
    """Which Kafka takes part."""
    if missing := absent():
        return missing
    process = Process.of(os.environ[_VARIABLE])
    return "on another machine: CPU time is the client's" if process is None else process.version()


class Cluster:
    """Producers, consumers and topics of a cluster: the mock one when no servers are given."""

    def __init__(self, servers: str | None = None) -> None:
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient

        self._producer_class, self._consumer_class = Producer, Consumer
        self._flushes: bool | None = None
        self._is_mock = servers is None
        if servers is None:
            # The cluster lives as long as the client that has made it.
            self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
            (broker,) = self._owner.list_topics().brokers.values()
            servers = f"{broker.host}:{broker.port}"
        self.servers = servers
        self.admin: Any = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def create_topic(self, partitions: int = 2) -> str:
        from confluent_kafka.cimpl import NewTopic

        topic = f"eosdb-bench-{uuid.uuid4().hex}"
        if self._is_mock:
            self._owner.list_topics(topic)
        else:
            wanted = NewTopic(topic, num_partitions=partitions, replication_factor=-1)
            self.admin.create_topics([wanted])[topic].result(30)
        return topic

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def flush_each_message(self, wanted: bool) -> None:
        """Whether the broker syncs after each message, for all its topics, its own ones included."""
        kafka: Any = import_module("confluent_kafka.admin")
        if wanted == self._flushes:
            return
        operation = kafka.AlterConfigOpType.SET if wanted else kafka.AlterConfigOpType.DELETE
        entry = kafka.ConfigEntry(_FLUSH, "1" if wanted else None, incremental_operation=operation)
        for broker in self.admin.list_topics(timeout=30).brokers:
            asked = kafka.ConfigResource(kafka.ResourceType.BROKER, str(broker))
            changed = kafka.ConfigResource(
                kafka.ResourceType.BROKER, str(broker), incremental_configs=[entry]
            )
            self.admin.incremental_alter_configs([changed])[changed].result(30)
            while True:
                (found,) = self.admin.describe_configs([asked]).values()
                if (found.result(30)[_FLUSH].value == "1") == wanted:
                    break
        self._flushes = wanted

    def producer(self, **config: object) -> Any:
        return self._producer_class(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )

    def transactional(self, topic: str) -> Any:
        """A transactional producer that has already sent something."""
        producer = self.producer(transactional_id=uuid.uuid4().hex)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(60)
        return producer

    def consumer(self, topic: str, offset: int = 0) -> Any:
        """A read_committed consumer of the topic's first partition that has read the record at `offset`."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer_class(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, 0, offset)])
        assert consumer.consume(1, 30), f"nothing at offset {offset}"
        return consumer


@dataclass(frozen=True, slots=True)
class Process:
    """The broker, where it runs on this machine."""

    pid: int

    @classmethod
    def of(cls, servers: str) -> Process | None:
        """Who listens there; None if that is another machine, or a process that cannot be looked at."""
        host, _, port = servers.partition(",")[0].rpartition(":")
        if not _is_here(host):
            return None
        sockets = {f"socket:[{inode}]" for inode in _listeners(int(port))}
        for descriptors in Path("/proc").glob("[0-9]*/fd"):
            try:
                if any(os.readlink(link) in sockets for link in descriptors.iterdir()):
                    return cls(int(descriptors.parent.name))
            except OSError:  # It has ended, or belongs to somebody else.
                continue
        return None

    def cpu_s(self) -> float:
        """CPU time of all threads so far."""
        stat = Path("/proc", str(self.pid), "stat").read_text().rpartition(") ")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Memory that it has in use."""
        pages = Path("/proc", str(self.pid), "statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def version(self) -> str:
        """Kafka's version, by the name of the library that the broker has open."""
        for link in Path("/proc", str(self.pid), "fd").iterdir():
            if found := re.search(r"kafka-clients-([\w.]+)\.jar", os.readlink(link)):
                return found[1]
        return "unknown"


def _is_here(host: str) -> bool:
    """Whether the address is one of this machine's: only these can be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _listeners(port: int) -> set[str]:
    """The inodes of the sockets that listen on a port."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *_ = (parts := line.split())
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                found.add(parts[9])
    return found
