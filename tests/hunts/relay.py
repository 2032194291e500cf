"""Kills and pauses of a relay and of its target, and then whether each record is there once.

`EOSDB_BENCH_KAFKA=HOST:PORT python -m tests.hunts.relay kafka --restart COMMAND` takes a broker on this
machine, which COMMAND starts again when it was killed; `serve` takes `eosdb serve`, `file` another file;
with `--back` the cluster is the source and a file the target. While a program writes to the source, commits
and aborts, each event comes at a random instant. At the end the relay catches up, and both sides are
compared record by record: key, value, headers and timestamp, in the order of each partition. Exit status 1
when they differ.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import eosdb
from benchmarks.kafka import Process
from eosdb import TopicPartition

TOPIC: Final = f"relay-hunt-{uuid.uuid4().hex[:8]}"
"""A broker may have those of earlier hunts."""
PARTITIONS: Final = 3
TIMEOUT_MS: Final = 6_000
"""Of the relay's transactions; pauses are longer."""
PAUSE_S: Final = TIMEOUT_MS / 1000 + 4
UP_S: Final = 120
Content = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Served:
    """A Kafka cluster in one process: a real broker, or `eosdb serve`."""

    address: str
    command: list[str]
    stays: bool
    """Whether the command is the broker itself, or starts it and ends."""

    def start(self) -> None:
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        if not self.stays:
            process.wait(UP_S)
        until(self.is_up, "the target takes connections")

    def is_up(self) -> bool:
        host, _, port = self.address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def pid(self) -> int:
        found = Process.of(self.address)
        if found is None:
            sys.exit(f"no process of this machine listens at {self.address}")
        return found.pid

    def kill(self) -> None:
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not self.is_up(), "the target is dead")
        time.sleep(random.random())
        self.start()

    def pause(self) -> None:
        pause(self.pid())


class Relaying:
    """The relay in a process of its own, started again when it was killed."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        self.check()
        self._process.kill()
        self._process.wait()
        self.start()

    def pause(self) -> None:
        """Half of the times another relay starts meanwhile; then one of the two must end by itself: that
        which has not claimed the target first."""
        self.check()
        if random.random() < 0.5:
            return pause(self._process.pid)
        first = self._process
        first.send_signal(signal.SIGSTOP)
        self.start()
        both = (first, self._process)
        time.sleep(PAUSE_S)
        first.send_signal(signal.SIGCONT)
        until(lambda: any(one.poll() is not None for one in both), "one of two relays ends")
        ended = next(one for one in both if one.poll() is not None)
        self._process = both[1 - both.index(ended)]
        if ended.returncode != 1 or b"another relay named" not in self._log.read_bytes():
            sys.exit(f"a relay ended with {ended.returncode}: {self._log.read_text()[-4000:]}")
        return None

    def check(self) -> None:
        if self._process.poll() is not None:
            sys.exit(f"the relay ended by itself: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(UP_S)


class Filling:
    """Writes to the source until it is stopped."""

    def __init__(self, path: Path, rate: int, seed: int) -> None:
        self._db = eosdb.connect(path, durability="off")
        self._db.admin.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"}, exist_ok=True)
        self._stopped = threading.Event()
        self._random, self._rate = random.Random(seed), rate
        self.committed = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Filling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        chance, number = self._random, 0
        with self._db.producer(transactional_id="filling") as producer:
            producer.init_transactions()
            while not self._stopped.is_set():
                count = chance.choice((1, 2, 10, 100, 400))
                producer.begin_transaction()
                for _ in range(count):
                    headers = [("n", b"%d" % number), ("n", None)][: chance.randrange(3)]
                    key = None if chance.random() < 0.2 else f"k{number % 50}"
                    value = (
                        None
                        if chance.random() < 0.05
                        else f"{number}-" + "x" * chance.randrange(200)
                    )
                    producer.send(
                        TOPIC, value, key, partition=chance.randrange(PARTITIONS), headers=headers
                    )
                    number += 1
                if chance.random() < 0.2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self.committed += count
                self._stopped.wait(count / self._rate)


class FillingCluster:
    """Writes to a cluster as source until it is stopped; what became of a transaction while the cluster
    died does not matter, for the cluster itself is compared."""

    def __init__(self, address: str, rate: int, seed: int) -> None:
        self._stopped = threading.Event()
        self._random, self._rate, self._address = random.Random(seed), rate, address
        self.committed = -1
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> FillingCluster:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        client = AdminClient({"bootstrap.servers": self._address})
        config = {"retention.ms": "-1"}
        new = NewTopic(TOPIC, PARTITIONS, replication_factor=-1, config=config)
        client.create_topics([new])[TOPIC].result(UP_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        import confluent_kafka as kafka

        number = 0
        while not self._stopped.is_set():
            settings = {
                "bootstrap.servers": self._address, "transactional.id": "filling", "log_level": 0,
                "transaction.timeout.ms": TIMEOUT_MS, "message.timeout.ms": TIMEOUT_MS,
            }  # fmt: skip
            producer = kafka.Producer(settings)
            with contextlib.suppress(kafka.KafkaException, BufferError):
                producer.init_transactions(20)
                while not self._stopped.is_set():
                    number = self._transaction(producer, number)

    def _transaction(self, producer: Any, number: int) -> int:
        chance = self._random
        count = chance.choice((1, 2, 10, 100, 400))
        producer.begin_transaction()
        for _ in range(count):
            headers = [("n", b"%d" % number), ("n", None)][: chance.randrange(3)]
            key = None if chance.random() < 0.2 else f"k{number % 50}"
            value = None if chance.random() < 0.05 else f"{number}-" + "x" * chance.randrange(200)
            producer.produce(TOPIC, value, key, chance.randrange(PARTITIONS), headers=headers)
            number += 1
        producer.flush(20)
        if chance.random() < 0.2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
        self._stopped.wait(count / self._rate)
        return number


def pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(pid, signal.SIGCONT)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + UP_S
    while not is_so():
        if time.monotonic() > deadline:
            sys.exit(f"not within {UP_S} s: {what}")
        time.sleep(0.02)


def in_file(path: Path) -> Iterator[Content]:
    with eosdb.connect(path, durability="off") as db, db.consumer() as consumer:
        for partition in range(PARTITIONS):
            tp = TopicPartition(TOPIC, partition)
            consumer.assign([tp])
            consumer.seek_to_beginning()
            end = consumer.end_offsets([tp])[tp]
            while consumer.position(tp) < end:
                for it in consumer.poll(1_000, 5_000):
                    yield partition, it.timestamp, it.key, it.value, it.headers


def in_cluster(address: str) -> Iterator[Content]:
    """By librdkafka, read_committed, up to the ends of the partitions."""
    import confluent_kafka as kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": address, "group.id": "hunt", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    }  # fmt: skip
    consumer = kafka.Consumer(settings)
    for partition in range(PARTITIONS):
        consumer.assign([kafka.TopicPartition(TOPIC, partition, 0)])
        while (message := consumer.poll(60)) is not None:
            if (error := message.error()) is None:
                headers = tuple(cast("list[tuple[str, bytes | None]]", message.headers() or []))
                yield partition, message.timestamp()[1], message.key(), message.value(), headers
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                break
        else:
            sys.exit(f"partition {partition} could not be read to its end")
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", choices=("kafka", "serve", "file"))
    parser.add_argument("--back", action="store_true", help="from the cluster into a file")
    parser.add_argument("--restart", help="command that starts the broker")
    parser.add_argument("--relay-kills", type=int, default=50)
    parser.add_argument("--target-kills", type=int, default=50)
    parser.add_argument("--relay-pauses", type=int, default=20)
    parser.add_argument("--target-pauses", type=int, default=20)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second in the source")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    random.seed(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="relay-hunt-"))
    status = hunt(options, folder)
    if status == 0:
        shutil.rmtree(folder)
    else:
        print(f"both sides and the relay's log are left in {folder}")
    sys.exit(status)


def hunt(options: argparse.Namespace, folder: Path) -> int:
    source, copy, back = folder / "source.db", folder / "target.db", folder / "back.db"
    target: Served | None = None
    if options.target == "kafka":
        address = os.environ["EOSDB_BENCH_KAFKA"]
        target = Served(address, shlex.split(options.restart), stays=False)
    elif options.target == "serve":
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        serve = [sys.executable, "-m", "eosdb.cli", "serve", str(copy), "--create"]
        target = Served(address, [*serve, "--port", address.rpartition(":")[2]], stays=True)
        target.start()
    config = folder / "config"
    config.write_text(f"transaction.timeout.ms={TIMEOUT_MS}\nmessage.timeout.ms={TIMEOUT_MS}\n")
    to = str(copy) if target is None else target.address
    command = [
        sys.executable,
        "-m",
        "eosdb.cli",
        "relay",
        str(source),
        "--to",
        to,
        "--topic",
        TOPIC,
    ]
    command += ["--create"] if target is None else ["--command-config", str(config)]
    if options.back and target is not None:
        command[4:7] = [str(back), "--from", target.address]
        command.append("--create")
    began = time.monotonic()
    with (
        FillingCluster(target.address, options.rate, options.seed)
        if options.back and target is not None
        else Filling(source, options.rate, options.seed)
    ) as filling:
        relaying = Relaying(command, folder / "relay.log")
        done = events(options, relaying, target)
    relaying.stop()
    subprocess.run([*command, "--once"], check=True, stdout=subprocess.DEVNULL, timeout=600)
    was = list(in_cluster(target.address) if options.back and target else in_file(source))
    now = list(
        in_file(back if options.back else copy) if options.back or not target else in_cluster(to)
    )
    if options.target == "serve" and target is not None:
        os.kill(target.pid(), signal.SIGKILL)
    same = was == now and filling.committed in (-1, len(was))
    counts = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
    twice = len(now) - len(set(Counter(now)))
    way = f"{options.target}{' back' if options.back else ''}, seed {options.seed}"
    print(
        f"{way}: {counts}; {len(was)} records in the source, {len(now)} in "
        f"the target, {'the same' if same else f'NOT THE SAME ({twice} not unique)'}, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if same else 1


def events(
    options: argparse.Namespace, relaying: Relaying, target: Served | None
) -> dict[str, int]:
    todo: list[tuple[str, Callable[[], None]]] = [
        ("kills of the relay", relaying.kill)
    ] * options.relay_kills
    todo += [("pauses of the relay", relaying.pause)] * options.relay_pauses
    if target is not None:
        todo += [("kills of the target", target.kill)] * options.target_kills
        todo += [("pauses of the target", target.pause)] * options.target_pauses
    random.shuffle(todo)
    done: dict[str, int] = dict.fromkeys((what for what, _ in todo), 0)
    for what, event in todo:
        time.sleep(random.uniform(0.3, 2.5))
        event()
        done[what] += 1
    return done


if __name__ == "__main__":
    main()
