"""A soak of the server: three foreign clients and the library copy a topic on one file, exactly once.

    python -m tests.hunts.soak_wire [--minutes 20] [--rate 100] [--kills 3] [--folder PATH]

A process of the library writes numbered records into a topic, so many a second. confluent-kafka,
aiokafka, kafka-python and the library's `process` copy it in transactions, each in a group of its own into
a topic of its own, while the server is killed (SIGKILL) and started again a few times. At the end: is every
number in every copy once, is the server's memory flat, does the file verify? The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final

import eosdb
from benchmarks.kafka import Process
from eosdb import TopicPartition

_SOURCE: Final = "in"
_PARTITIONS: Final = 3
_PATIENCE_S: Final = 120
_FLAT: Final = 1.1
_SLACK_MB: Final = 5.0


def write(path: str, _: str, rate: float, ended: Event) -> None:
    """Numbered records, so many a second."""
    with eosdb.connect(path) as db, db.producer() as producer:
        began, number = monotonic(), 0
        while not ended.is_set():
            producer.send(_SOURCE, b"%d" % number, partition=number % _PARTITIONS)
            number += 1
            sleep(max(0.0, began + number / rate - monotonic()))


def by_library(path: str, _: str, __: float, ended: Event) -> None:
    with eosdb.connect(path) as db:
        while not ended.is_set():
            eosdb.process(
                db, _SOURCE, lambda record: record.value, "library",
                group_id="library", transactional_id="library", until_idle_ms=200,
            )  # fmt: skip


def by_confluent(_: str, servers: str, __: float, ended: Event) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    def life() -> None:
        # librdkafka forgets the coordinator of a cluster whose only broker was gone (its issue 5511).
        common = {
            "bootstrap.servers": servers,
            "log_level": 0,
            "metadata.recovery.strategy": "none",
        }
        producer = Producer({**common, "transactional.id": "confluent"})
        producer.init_transactions(_PATIENCE_S)
        consumer = Consumer({**common, **_consumer_settings("confluent", ".")})
        consumer.subscribe([_SOURCE])
        try:
            while not ended.is_set():
                found = [m for m in consumer.consume(100, 0.2) if m.error() is None]
                if found:
                    producer.begin_transaction()
                    for message in found:
                        producer.produce("confluent", message.value())
                    producer.send_offsets_to_transaction(
                        consumer.position(consumer.assignment()),
                        consumer.consumer_group_metadata(),
                        _PATIENCE_S,
                    )
                    producer.commit_transaction(_PATIENCE_S)
        finally:
            consumer.close()

    _live_again_after(KafkaException, life, ended)


def by_kafka_python(_: str, servers: str, __: float, ended: Event) -> None:
    import kafka
    import kafka.errors

    logging.getLogger("kafka").setLevel(logging.CRITICAL)

    def life() -> None:
        clients: Any = kafka
        producer = clients.KafkaProducer(bootstrap_servers=servers, transactional_id="kafka-python")
        consumer = clients.KafkaConsumer(
            _SOURCE, bootstrap_servers=servers, **_consumer_settings("kafka-python", "_")
        )
        try:
            producer.init_transactions()
            while not ended.is_set():
                found = consumer.poll(timeout_ms=200, max_records=100)
                if found:
                    producer.begin_transaction()
                    for message in (message for some in found.values() for message in some):
                        producer.send("kafka-python", message.value)
                    offsets = {
                        tp: clients.OffsetAndMetadata(consumer.position(tp), "", -1) for tp in found
                    }
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    producer.commit_transaction()
        finally:
            consumer.close(autocommit=False)
            producer.close(timeout=0)

    _live_again_after(kafka.errors.KafkaError, life, ended)


def by_aiokafka(_: str, servers: str, __: float, ended: Event) -> None:
    import aiokafka
    import aiokafka.errors

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # While the server is gone.

    async def life() -> None:
        async with (
            aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id="aiokafka"
            ) as producer,
            aiokafka.AIOKafkaConsumer(
                _SOURCE, bootstrap_servers=servers, **_consumer_settings("aiokafka", "_")
            ) as consumer,
        ):
            while not ended.is_set():
                found = await consumer.getmany(timeout_ms=200, max_records=100)
                if found:
                    async with producer.transaction():
                        for message in (message for some in found.values() for message in some):
                            await producer.send("aiokafka", message.value)
                        offsets = {tp: some[-1].offset + 1 for tp, some in found.items()}
                        await producer.send_offsets_to_transaction(offsets, "aiokafka")

    _live_again_after(aiokafka.errors.KafkaError, lambda: asyncio.run(life()), ended)


COPIERS: Final = {
    "library": by_library,
    "confluent": by_confluent,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
}


def _consumer_settings(group: str, dot: str) -> dict[str, object]:
    settings = {
        "group.id": group, "group.instance.id": group, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": False,
    }  # fmt: skip
    return {name.replace(".", dot): value for name, value in settings.items()}


def _live_again_after(error: type[BaseException], life: Callable[[], object], ended: Event) -> None:
    """A life ends with any error of the client, and the next one begins where the group stands."""
    while not ended.is_set():
        with suppress(error, OSError, AssertionError):
            life()
        sleep(0.2)


@contextmanager
def running(target: Callable[..., None], path: Path, servers: str, rate: float) -> Iterator[Event]:
    """The event that ends the process."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    process = context.Process(target=target, args=(str(path), servers, rate, ended))
    process.start()
    try:
        yield ended
    finally:
        ended.set()
        process.join(_PATIENCE_S)
        if process.is_alive():
            process.kill()


class Served:
    """`eosdb serve`, which can be killed and comes again at the same port."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self._path = path
        self.servers = f"127.0.0.1:{self.port}"
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "eosdb.cli", "serve", str(self._path), "--create"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("serving")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._start()

    def rss_mb(self) -> float:
        return Process(self._process.pid).rss_mb()

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(_PATIENCE_S) == 0


def numbers(db: eosdb.Database, topic: str) -> Counter[bytes]:
    """How often each number can be read as committed."""
    found: Counter[bytes] = Counter()
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(db.broker.partitions_for(topic))])
        while records := consumer.poll_columns(max_records=5_000):
            for part in records:
                found.update(part.values)
    return found


def soak(path: Path, seconds: float, rate: float, kills: int) -> list[str]:
    """What went wrong."""
    with eosdb.connect(path) as db:
        db.admin.create_topic(_SOURCE, _PARTITIONS)
        for name in COPIERS:
            db.admin.create_topic(name)
    server, memory = Served(path), list[float]()
    copiers = [running(target, path, server.servers, rate) for target in COPIERS.values()]
    with ExitStack() as stack:
        for copier in copiers:
            stack.enter_context(copier)
        with running(write, path, server.servers, rate):
            began, next_kill, looks = monotonic(), 1, 30
            for look in range(1, looks + 1):
                while monotonic() < began + seconds * look / looks:
                    sleep(0.5)
                if kills and look >= next_kill * looks / (kills + 1):
                    next_kill += 1
                    server.kill()
                memory.append(server.rss_mb())
                print(
                    f"{monotonic() - began:7.0f} s  server {memory[-1]:6.1f} MB  "
                    f"file {path.stat().st_size / 1e6:7.1f} MB",
                    flush=True,
                )
        with eosdb.connect(path) as db:
            _wait_for_copies(db)
    server.stop()
    with eosdb.connect(path) as db:
        sent = numbers(db, _SOURCE)
        problems = [
            f"{name}: {len(sent - copied)} missing, {sum((copied - sent).values())} too many"
            for name in COPIERS
            if (copied := numbers(db, name)) != sent
        ]
        report = db.verify()
    print(f"{len(sent)} records in each of {len(COPIERS)} copies, {report.events} events")
    problems += report.problems
    middle, last = memory[len(memory) // 3 : 2 * len(memory) // 3], memory[2 * len(memory) // 3 :]
    if max(last) > max(middle) * _FLAT and max(last) > max(middle) + _SLACK_MB:
        problems.append(f"the server's memory grew from {max(middle):.0f} to {max(last):.0f} MB")
    return problems


def _wait_for_copies(db: eosdb.Database) -> None:
    """Until every copy is as long as the source, or nothing has come for long."""
    wanted = sum(numbers(db, _SOURCE).values())
    deadline, before = monotonic() + _PATIENCE_S, -1
    while monotonic() < deadline:
        counts = [sum(numbers(db, name).values()) for name in COPIERS]
        if min(counts) >= wanted:
            return
        if sum(counts) > before:
            deadline, before = monotonic() + _PATIENCE_S, sum(counts)
        sleep(1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunts.soak_wire", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=float, default=100, help="records a second")
    parser.add_argument("--kills", type=int, default=3, help="of the server")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the file is made")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(dir=asked.folder, prefix="soak-") as folder:
        problems = soak(Path(folder, "soak.db"), asked.minutes * 60, asked.rate, asked.kills)
    print("\n".join(problems) if problems else "every number once in every copy, and all is flat")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    raise SystemExit(main())
