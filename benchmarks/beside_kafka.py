"""Cases beside a real Kafka, each the same work by eosdb and through confluent-kafka, in turns.

The time is the client's. The CPU time is that of client and broker: eosdb has both in this process, and a
broker on this machine is asked for its own. Kafka is measured twice, as it is and with a sync after each
message (`log.flush.interval.messages=1`, which is switched in the running broker), since that is what eosdb
does. Everybody looks at each value that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, Final, TypeAlias

import eosdb
from benchmarks import by_hand, eos, kafka, raw
from benchmarks.measure import Case, Round, Row, Settings, Target, Turn, calling, costs
from benchmarks.raw import VALUE
from eosdb import TopicPartition

OURS: Final = "eosdb"
MANY: Final = "eosdb, send_many"
COLUMNS: Final = "eosdb, poll_columns"
PLAIN: Final = "Kafka"
FLUSHED: Final = "Kafka, flush per message"
LIMIT: Final = "raw sqlite3, multi-row VALUES"

_SIZE: Final = 100
"""Records in each transaction of consume, process, produce."""

Ours: TypeAlias = Callable[[Path], AbstractContextManager[Turn]]
Theirs: TypeAlias = Callable[[kafka.Cluster], AbstractContextManager[Turn]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What both do. A call does `units`; a turn takes `at_once` calls, and a round `calls` of them."""

    name: str
    title: str
    unit: str
    units: int = 1
    calls: int
    at_once: int
    ours: Mapping[str, Ours]
    best: str = OURS
    """The way that is meant for this work; the others are told."""
    theirs: Theirs
    goals: tuple[float | None, float | None]
    """The rate of the best, as a multiple of Kafka's as it is, and with a flush per message."""
    targets: tuple[Target, ...] = ()


def cases(settings: Settings) -> list[Case]:
    missing = kafka.absent()
    return [_case(work, missing) for work in _works(settings)]


def _works(settings: Settings) -> list[Work]:
    pairs, batches, records = (
        settings.size(400, 4), settings.size(100, 2), settings.size(100_000, 2_000),
    )  # fmt: skip
    large, few = settings.size(16, 2), settings.size(4, 1)
    process = partial(_process, records=4 * batches * (_SIZE + 1))
    kafka_processing = partial(kafka_process, records=4 * batches * (_SIZE + 1))
    return [
        Work(
            name="kafka-pairs", title="one record to each of 2 partitions", unit="transactions/s",
            calls=pairs, at_once=settings.size(40, 2), goals=(8, 20),
            ours={OURS: _pairs}, theirs=partial(kafka_send, counts=(1, 1)),
        ),
        Work(
            name="kafka-process", title=f"consume, process, produce, {_SIZE} records each",
            unit="transactions/s", calls=batches, at_once=batches, goals=(15, 25),
            ours={OURS: process}, theirs=kafka_processing,
        ),
        Work(
            name="kafka-1000", title="1,000 records a transaction", unit="records/s", units=1_000,
            calls=batches, at_once=settings.size(10, 1), goals=(3, 4),
            ours={OURS: partial(_send, size=1_000), MANY: partial(_send_many, size=1_000)}, best=MANY,
            theirs=partial(kafka_send, counts=(1_000,)),
        ),
        Work(
            name="kafka-10000", title="10,000 records a transaction", unit="records/s", units=10_000,
            calls=large, at_once=few, goals=(None, None),
            ours={
                OURS: partial(_send, size=10_000), MANY: partial(_send_many, size=10_000),
                LIMIT: partial(_raw, size=10_000, at_once=few),
            }, best=MANY,
            theirs=partial(kafka_send, counts=(10_000,)), targets=(Target(MANY, LIMIT, 0.95),),
        ),
        Work(
            name="kafka-read-batches", title="read_committed, 500 at once", unit="records/s",
            units=records, calls=few, at_once=1, goals=(1, 1),
            ours={
                OURS: partial(_read, records=records, reading=_batches),
                COLUMNS: partial(_read, records=records, reading=_columns),
            }, best=COLUMNS,
            theirs=partial(_kafka_read, records=records, reading=_kafka_batches),
        ),
        Work(
            name="kafka-read-singly", title="read_committed, one by one", unit="records/s",
            units=records, calls=few, at_once=1, goals=(2, 2),
            ours={
                OURS: partial(_read, records=records, reading=_singly),
                COLUMNS: partial(_read, records=records, reading=_columns_singly),
            }, best=COLUMNS,
            theirs=partial(_kafka_read, records=records, reading=_kafka_singly),
        ),
    ]  # fmt: skip


def _case(work: Work, missing: str | None) -> Case:
    kafkas = (PLAIN, FLUSHED)
    rows = [Row(name, "yes") for name in work.ours]
    rows.append(Row(PLAIN, "no, left to the operating system", absent=missing or "not measured"))
    rows.append(Row(FLUSHED, "yes", absent=missing or "not measured"))
    rows += [Row(_cpu(row.name), unit="µs of CPU", absent=row.absent) for row in rows]

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        cluster = None if missing else kafka.real()
        try:
            yield lambda folder: _round(work, folder, cluster)
        finally:
            if cluster is not None:
                cluster.flush_each_message(False)

    return Case(
        name=work.name,
        title=f"Beside Kafka: {work.title}",
        unit=work.unit,
        rows=rows,
        targets=(
            *work.targets,
            *(Target(work.best, name, goal) for name, goal in zip(kafkas, work.goals, strict=True)),
            *(Target(OURS, name, None) for name in kafkas if work.best != OURS),
            *(Target(_cpu(name), _cpu(work.best), None) for name in kafkas),
        ),
        open=opened,
    )


def _cpu(name: str) -> str:
    return f"{name}, CPU"


def _round(work: Work, folder: Path, cluster: kafka.Cluster | None) -> dict[str, float]:
    with ExitStack() as stack:
        turns, clocks = {}, {}
        for name, ours in work.ours.items():
            place = folder / name.replace(" ", "-")
            place.mkdir()
            turns[name] = stack.enter_context(ours(place))
        if cluster is not None:
            theirs = stack.enter_context(work.theirs(cluster))
            broker = kafka.Process.of(cluster.servers)
            for name, flush in ((PLAIN, False), (FLUSHED, True)):
                turns[name] = flushing(cluster, flush, theirs)
                if broker is not None:
                    clocks[name] = lambda: process_time() + broker.cpu_s()
        costs(turns, work.at_once, work.at_once)  # To be warm.
        found = {}
        for name, cost in costs(turns, work.calls, work.at_once, clocks).items():
            found[name] = 1000 * work.units / cost.wall
            found[_cpu(name)] = 1000 * cost.cpu / work.units
        return found


def flushing(cluster: kafka.Cluster, flush: bool, turn: Turn) -> Turn:
    @contextmanager
    def made() -> Iterator[Callable[[], object]]:
        cluster.flush_each_message(flush)
        with turn() as call:
            yield call

    return made


# -- eosdb ------------------------------------------------------------------------------------------


@contextmanager
def _pairs(folder: Path) -> Iterator[Turn]:
    with eos.producing(folder, 2, transactional_id="bench") as (_, producer):
        yield calling(lambda: by_hand.one_pair(producer))


@contextmanager
def _send(folder: Path, size: int) -> Iterator[Turn]:
    with eos.producing(folder, transactional_id="bench") as (_, producer):

        def send() -> None:
            with producer.transaction():
                for _ in range(size):
                    producer.send("t", VALUE)

        yield calling(send)


@contextmanager
def _send_many(folder: Path, size: int) -> Iterator[Turn]:
    with eos.producing(folder, transactional_id="bench") as (_, producer):
        values = [VALUE] * size

        def send() -> None:
            with producer.transaction():
                producer.send_many("t", values)

        yield calling(send)


@contextmanager
def _raw(folder: Path, size: int, at_once: int) -> Iterator[Turn]:
    with closing(raw.open_file(folder / "raw.db")) as file:
        numbers = count()

        @contextmanager
        def turn() -> Iterator[Callable[[], object]]:
            transactions = [raw.ready(next(numbers) * size, size) for _ in range(at_once)]
            yield lambda: raw.write(file, transactions.pop())

        yield turn


@contextmanager
def _process(folder: Path, records: int) -> Iterator[Turn]:
    with eos.producing(folder, transactional_id="bench") as (db, producer):
        db.admin.create_topic("in")
        with db.producer(**eos.BATCHED) as source:  # type: ignore[arg-type]
            for _ in range(records):
                source.send("in", VALUE)

        @contextmanager
        def turn() -> Iterator[Callable[[], object]]:
            with db.consumer(
                "bench", auto_offset_reset="earliest", max_poll_records=_SIZE
            ) as consumer:
                consumer.subscribe(["in"])
                assert consumer.poll(1_000, 1)
                yield lambda: _processed(consumer, producer)

        yield turn


def _processed(consumer: eosdb.Consumer, producer: eosdb.Producer) -> None:
    found = consumer.poll()
    assert len(found) == _SIZE, f"{len(found)} records are left"
    with producer.transaction():
        for record in found:
            producer.send("t", record.value, key=record.key)
        producer.send_offsets_to_transaction(consumer.position_offsets(), consumer.group_metadata())


@contextmanager
def _read(
    folder: Path, records: int, reading: Callable[[eosdb.Consumer, int], int]
) -> Iterator[Turn]:
    with eos.producing(folder, transactional_id="bench") as (db, producer):
        eos.transactional_rate(producer, records, 1_000)

        @contextmanager
        def turn() -> Iterator[Callable[[], object]]:
            with db.consumer(auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("t", 0)])
                assert consumer.poll(1_000, 1)
                yield lambda: _check(reading(consumer, records), records)

        yield turn


def _batches(consumer: eosdb.Consumer, records: int) -> int:
    size = done = 0
    while done < records:
        found: list[Any] = consumer.poll()
        for record in found:
            size += len(record.value)
        done += len(found)
    return size


def _singly(consumer: eosdb.Consumer, records: int) -> int:
    size = 0
    arriving: Iterator[Any] = iter(consumer)
    for number, record in enumerate(arriving, 1):
        size += len(record.value)
        if number == records:
            break
    return size


def _columns(consumer: eosdb.Consumer, records: int) -> int:
    size = done = 0
    while done < records:
        found = consumer.poll_columns()
        for part in found:
            size += sum(map(len, part.values))
        done += len(found)
    return size


def _columns_singly(consumer: eosdb.Consumer, records: int) -> int:
    """Value by value, as `_singly` takes them."""
    size = done = 0
    while done < records:
        found = consumer.poll_columns()
        for part in found:
            for value in part.values:
                size += len(value)
        done += len(found)
    return size


def _check(size: int, records: int) -> None:
    assert size == records * len(VALUE), f"{size} bytes of values, expected {records * len(VALUE)}"


# -- Kafka ------------------------------------------------------------------------------------------


@contextmanager
def _topic(cluster: kafka.Cluster) -> Iterator[str]:
    topic = cluster.create_topic()
    try:
        yield topic
    finally:
        cluster.delete_topic(topic)


@contextmanager
def kafka_send(cluster: kafka.Cluster, counts: tuple[int, ...]) -> Iterator[Turn]:
    """Transactions of so many records to each partition."""
    with _topic(cluster) as topic:
        producer = cluster.transactional(topic)
        yield calling(lambda: _kafka_transaction(producer, topic, counts))


def _kafka_transaction(producer: Any, topic: str, counts: tuple[int, ...]) -> None:
    producer.begin_transaction()
    for partition, records in enumerate(counts):
        for _ in range(records):
            producer.produce(topic, VALUE, partition=partition)
    producer.commit_transaction(60)


@contextmanager
def kafka_process(cluster: kafka.Cluster, records: int) -> Iterator[Turn]:
    with _topic(cluster) as topic:
        source = cluster.producer()
        for _ in range(records):
            source.produce(topic, VALUE, partition=0)
        source.flush(60)
        producer, done = cluster.transactional(topic), 0

        @contextmanager
        def turn() -> Iterator[Callable[[], object]]:
            nonlocal done
            done += 1

            def call() -> None:
                nonlocal done
                done += _SIZE
                _kafka_processed(consumer, producer, topic)

            with closing(cluster.consumer(topic, done - 1)) as consumer:
                yield call

        yield turn


def _kafka_processed(consumer: Any, producer: Any, topic: str) -> None:
    found = consumer.consume(_SIZE, 10)
    assert len(found) == _SIZE, f"{len(found)} records are left"
    producer.begin_transaction()
    for message in found:
        producer.produce(topic, message.value(), message.key(), partition=1)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    producer.commit_transaction(60)


@contextmanager
def _kafka_read(
    cluster: kafka.Cluster, records: int, reading: Callable[[Any, int], int]
) -> Iterator[Turn]:
    with _topic(cluster) as topic:
        producer = cluster.transactional(topic)
        for _ in range(0, records, 1_000):
            _kafka_transaction(producer, topic, (1_000,))

        @contextmanager
        def turn() -> Iterator[Callable[[], object]]:
            with closing(cluster.consumer(topic)) as consumer:
                yield lambda: _check(reading(consumer, records), records)

        yield turn


def _kafka_batches(consumer: Any, records: int) -> int:
    size = done = 0
    while done < records:
        # It waits until it has as many as it was asked for.
        found = consumer.consume(min(500, records - done), 10)
        assert found, "the cluster has lost records"
        for message in found:
            size += len(message.value())
        done += len(found)
    return size


def _kafka_singly(consumer: Any, records: int) -> int:
    size = 0
    for _ in range(records):
        message = consumer.poll(10)
        assert message is not None, "the cluster has lost records"
        size += len(message.value())
    return size
