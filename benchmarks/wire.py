"""What `eosdb serve` costs beside the library, and beside a real Kafka with the same client.

The server is a process of its own, as its users have it; its CPU time is told by the system, and the
client's is left out. Whoever is compared works on a new file in the same round.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any, Final

import eosdb
from benchmarks import beside_kafka, eos, kafka
from benchmarks.measure import Case, Row, Settings, Target, costs
from benchmarks.raw import VALUE
from eosdb import TopicPartition

SERVER: Final = "eosdb serve"
LIBRARY: Final = "library"
PLAIN: Final = "Kafka"
FLUSHED: Final = "Kafka, flush per message"
_SIZE: Final = 1_000
"""Records in each transaction."""
_CLIENTS: Final = 50
_POLL_MS: Final = 5_000


@contextmanager
def served(folder: Path) -> Iterator[kafka.Cluster]:
    """`eosdb serve` on a new file."""
    command = [sys.executable, "-m", "eosdb.cli", "serve", str(folder / "served.db")]
    with subprocess.Popen(
        [*command, "--create", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield kafka.Cluster(server.stdout.readline().split()[-1])
        finally:
            server.terminate()


def cases(settings: Settings) -> list[Case]:
    records = settings.size(100_000, 4_000)
    pairs, batches = settings.size(200, 4), settings.size(50, 2)
    process = partial(beside_kafka.kafka_process, records=4 * batches * 101)
    absent = kafka.absent() or "not measured"
    return [
        Case(
            name="wire-produce",
            title=f"Over the wire: {_SIZE:,} records of 100 bytes a transaction",
            unit="µs of CPU a record",
            rows=[Row(LIBRARY, "yes"), Row(SERVER, "yes")],
            targets=[Target(SERVER, LIBRARY, 1.3, at_least=False)],
            open=lambda _: nullcontext(partial(_produce, records=records)),
        ),
        Case(
            name="wire-fetch",
            title="Over the wire: reading what is committed",
            unit="µs of CPU a record",
            rows=[Row(LIBRARY), Row(SERVER)],
            targets=[Target(SERVER, LIBRARY, 1.0, at_least=False)],
            open=lambda _: nullcontext(partial(_fetch, records=records)),
        ),
        *(
            Case(
                name=name,
                title=f"The same client of eosdb and of Kafka: {title}",
                unit="transactions/s",
                rows=[
                    Row(SERVER, "yes"),
                    Row(PLAIN, "no", absent=absent),
                    Row(FLUSHED, "yes", absent=absent),
                ],
                targets=[Target(SERVER, PLAIN, None), Target(SERVER, FLUSHED, goal)],
                open=lambda _, work=work, calls=calls: nullcontext(  # type: ignore[misc]
                    partial(_same_client, work=work, calls=calls)
                ),
            )
            for name, title, work, calls, goal in (
                (
                    "wire-pairs",
                    "one record to each of 2 partitions",
                    partial(beside_kafka.kafka_send, counts=(1, 1)),
                    pairs,
                    5,
                ),
                (
                    "wire-process",
                    "consume, process, produce, 100 records each",
                    process,
                    batches,
                    3,
                ),
            )
        ),
        Case(
            name="wire-idle",
            title=f"Over the wire: {_CLIENTS} connections, half of them in long polls, the others silent",
            unit="share of a core",
            rows=[Row(SERVER)],
            targets=[Target(SERVER, None, 0.01, at_least=False)],
            open=lambda _: nullcontext(partial(_idle, seconds=settings.size(20, 1))),
            rounds_max=2,
        ),
        Case(
            name="wire-crowd",
            title=f"Over the wire: {_CLIENTS} producers, whose transactions {_CLIENTS} readers wait for",
            unit="ms of CPU a transaction",
            rows=[Row("all at once", "yes"), Row("one after the other", "yes")],
            targets=[Target("all at once", None, None), Target("one after the other", None, None)],
            open=lambda _: nullcontext(partial(_crowd, transactions=settings.size(500, _CLIENTS))),
            rounds_max=3,
        ),
        Case(
            name="wire-start",
            title="In process: from opening a new file to the first record of a new client",
            unit="ms",
            rows=[Row("first", "no"), Row("warm", "no")],
            targets=[Target("warm", None, 30, at_least=False)],
            open=lambda _: nullcontext(_start),
        ),
        Case(
            name="wire-memory",
            title=f"Over the wire: {_CLIENTS} clients, and {settings.size(10, 1) * records:,} records",
            unit="MB",
            rows=[Row(f"{SERVER}, after a tenth"), Row(f"{SERVER}, at the end")],
            targets=[
                Target(f"{SERVER}, at the end", None, 80, at_least=False),
                Target(f"{SERVER}, at the end", f"{SERVER}, after a tenth", 1.1, at_least=False),
            ],
            open=lambda _: nullcontext(partial(_memory, records=settings.size(10, 1) * records)),
            rounds_max=1,
        ),
    ]


def _broker(cluster: kafka.Cluster) -> kafka.Process:
    found = kafka.Process.of(cluster.servers)
    assert found is not None, "the server is not on this machine"
    return found


def _send(producer: Any, topic: str, records: int) -> None:
    for _ in range(0, records, _SIZE):
        producer.begin_transaction()
        for _ in range(_SIZE):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(60)


def _produce(folder: Path, records: int) -> Mapping[str, float]:
    with eos.producing(folder, transactional_id="bench") as (_, producer):
        began = process_time()
        eos.transactional_rate(producer, records, _SIZE)
        library = process_time() - began
    with served(folder) as cluster:
        topic, broker = cluster.create_topic(1), _broker(cluster)
        sender = cluster.transactional(topic)
        _send(sender, topic, _SIZE)
        began = broker.cpu_s()
        _send(sender, topic, records)
        over_wire = broker.cpu_s() - began
    return {LIBRARY: library / records * 1e6, SERVER: over_wire / records * 1e6}


def _fetch(folder: Path, records: int) -> Mapping[str, float]:
    with served(folder) as cluster:
        topic, broker = cluster.create_topic(1), _broker(cluster)
        _send(cluster.transactional(topic), topic, records)
        with closing(cluster.consumer(topic)) as consumer:
            began, done = broker.cpu_s(), 1
            while done < records:
                done += len(consumer.consume(min(500, records - done), 60))
            over_wire = broker.cpu_s() - began
        with (
            eosdb.connect(folder / "served.db") as db,
            db.consumer(auto_offset_reset="earliest") as reader,
        ):
            reader.assign([TopicPartition(topic, 0)])
            began, done = process_time(), 0
            while done < records:
                done += len(reader.poll(1_000))
            library = process_time() - began
    return {LIBRARY: library / records * 1e6, SERVER: over_wire / records * 1e6}


def _same_client(folder: Path, work: beside_kafka.Theirs, calls: int) -> Mapping[str, float]:
    with ExitStack() as stack:
        turns = {SERVER: stack.enter_context(work(stack.enter_context(served(folder))))}
        if kafka.absent() is None:
            real = kafka.real()
            stack.callback(real.flush_each_message, False)
            theirs = stack.enter_context(work(real))
            turns[PLAIN] = beside_kafka.flushing(real, False, theirs)
            turns[FLUSHED] = beside_kafka.flushing(real, True, theirs)
        costs(turns, calls, calls)  # To be warm.
        return {name: 1000 / cost.wall for name, cost in costs(turns, calls, calls).items()}


def _idle(folder: Path, seconds: int) -> Mapping[str, float]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Assigned

    with served(folder) as cluster, ExitStack() as stack:
        topic, broker = cluster.create_topic(1), _broker(cluster)
        for number in range(_CLIENTS):
            config = {
                "bootstrap.servers": cluster.servers, "group.id": f"g{number}",
                "fetch.wait.max.ms": _POLL_MS, "fetch.queue.backoff.ms": 1_000,
                "socket.timeout.ms": 60_000, "log_level": 0,
            }  # fmt: skip
            consumer = Consumer(config)
            stack.callback(consumer.close)
            consumer.list_topics(topic, timeout=60)
            if number % 2:
                consumer.assign([Assigned(topic, 0, 0)])
                consumer.poll(0.1)
        sleep(2)
        began, start = broker.cpu_s(), perf_counter()
        sleep(seconds)
        return {SERVER: (broker.cpu_s() - began) / (perf_counter() - start)}


def _crowd(folder: Path, transactions: int) -> Mapping[str, float]:
    with served(folder) as cluster:
        topic, broker = cluster.create_topic(1), _broker(cluster)
        with crowd(cluster.servers, topic) as carry_out:
            found = {}
            for name, how, count in (
                ("all at once", "busy", transactions),
                ("one after the other", "quiet", transactions // 5),
            ):
                began = broker.cpu_s()
                carry_out(how, count)
                found[name] = (broker.cpu_s() - began) / count * 1_000
            return found


@contextmanager
def crowd(servers: str, topic: str) -> Iterator[Callable[[str, int], None]]:
    """Clients in a process of their own; the function carries out transactions (`crowd.py`)."""
    numbers = [str(_CLIENTS), str(_CLIENTS)]
    command = [sys.executable, "-m", "benchmarks.crowd", servers, topic, *numbers]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        assert clients.stdout.readline() == "done\n"

        def carry_out(how: str, count: int) -> None:
            assert clients.stdin is not None
            assert clients.stdout is not None
            clients.stdin.write(f"{how} {count}\n")
            clients.stdin.flush()
            assert clients.stdout.readline() == "done\n"

        try:
            yield carry_out
        finally:
            clients.kill()


def _start(folder: Path) -> Mapping[str, float]:
    from confluent_kafka import Producer

    took = []
    for number in range(6):
        start = perf_counter()
        with eosdb.connect(folder / f"{number}.db", durability="off") as db, db.serve() as server:
            db.admin.create_topic("t")
            config = {"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0, "log_level": 0}
            producer = Producer(config)
            producer.produce("t", VALUE)
            assert producer.flush(60) == 0
            took.append(perf_counter() - start)
    return {"first": took[0] * 1000, "warm": statistics.median(took[1:]) * 1000}


def _memory(folder: Path, records: int) -> Mapping[str, float]:
    with served(folder) as cluster, ExitStack() as stack:
        topic, broker = cluster.create_topic(1), _broker(cluster)
        sender = cluster.transactional(topic)
        readers = [stack.enter_context(closing(cluster.consumer(topic))) for _ in range(_CLIENTS)]
        found = {}
        for number in range(1, 11):
            _send(sender, topic, records // 10)
            done = 0
            while done < records // 10:
                done += len(readers[number].consume(500, 60))
            if number == 1:
                found[f"{SERVER}, after a tenth"] = broker.rss_mb()
        found[f"{SERVER}, at the end"] = broker.rss_mb()
        return found
