"""Kafka: an idempotent producer; results and offsets in one transaction.

The worker is a static member of its group, so that its successor need not wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import kafka
from benchmarks.why_not.contract import Driver, Handle, Server, chunks


class Broker(Driver):
    name = "kafka"
    durable = "fsync before each answer (`acks=all`, `log.flush.interval.messages=1`); one broker"
    lease_min_s = 6.0

    @classmethod
    def absent(cls) -> str | None:
        return kafka.absent()

    @classmethod
    @contextmanager
    def serve(cls, folder: Path) -> Iterator[Server]:
        address = os.environ["EOSDB_BENCH_KAFKA"]
        process = kafka.Process.of(address)
        yield Server(address, (process.pid,) if process else ())

    def connect(self) -> kafka.Cluster:
        return kafka.Cluster(self.address)

    def create(self) -> None:
        from confluent_kafka.cimpl import NewTopic

        topics = [NewTopic(f"{end}-{self.run}", num_partitions=1) for end in ("in", "out")]
        cluster = self.connect()
        for done in cluster.admin.create_topics(topics).values():
            done.result(30)
        # Its coordinator of transactions is there when the first one is asked for.
        cluster.producer(transactional_id=f"first-{self.run}").init_transactions(60)

    def produce(self, values: Iterable[str], size: int) -> None:
        producer = self.connect().producer(acks="all")
        for some in chunks(values, size):
            for value in some:
                producer.produce(f"in-{self.run}", value.encode())
            assert producer.flush(60) == 0, "not acknowledged"

    def consumer(self, **config: object) -> Any:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": self.address, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0, **config,
        }  # fmt: skip
        return Consumer(settings)

    def work(self, handle: Handle, size: int, limit: int, idle_s: float) -> None:
        producer = self.connect().producer(
            transactional_id=f"worker-{self.run}", transaction_timeout_ms=10_000
        )
        producer.init_transactions(60)
        consumer = self.consumer(
            **{"group.id": f"workers-{self.run}", "group.instance.id": "worker",
               "session.timeout.ms": int(self.lease_s * 1000)}
        )  # fmt: skip
        consumer.subscribe([f"in-{self.run}"])
        last, done = time.monotonic(), 0
        while done < limit and time.monotonic() - last <= idle_s:
            found = [message for message in consumer.consume(size, 0.5) if not message.error()]
            if not found:
                continue
            producer.begin_transaction()
            for message in found:
                producer.produce(f"out-{self.run}", handle(message.value().decode()).encode())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction(60)
            done, last = done + len(found), time.monotonic()
        consumer.close()

    def results(self) -> list[str]:
        return self.read("out")

    def inputs(self) -> list[str]:
        return self.read("in")

    def read(self, end: str) -> list[str]:
        """Everything up to the end of the partition."""
        from confluent_kafka import KafkaError, TopicPartition

        consumer = self.consumer(**{"group.id": "reader", "enable.partition.eof": True})
        consumer.assign([TopicPartition(f"{end}-{self.run}", 0, 0)])
        found: list[str] = []
        while True:
            for message in consumer.consume(1_000, 1):
                if not message.error():
                    found.append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    consumer.close()
                    return found
