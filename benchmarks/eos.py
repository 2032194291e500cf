"""What eosdb does in each case, by its public API, with `durability="full"` unless it says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import eosdb
from benchmarks.raw import VALUE

BATCHED = {"linger_ms": 60_000, "batch_size": 1_000_000}
"""A producer that sends when it is flushed, or when a request is full."""


@contextmanager
def producing(
    folder: Path, partitions: int = 1, *, clock: eosdb.Clock | None = None, **config: object
) -> Iterator[tuple[eosdb.Database, eosdb.Producer]]:
    """A new file with the topic `t`, and a producer that has already sent something."""
    with eosdb.connect(folder / "eos.db", clock=clock) as db:
        db.admin.create_topic("t", partitions)
        with db.producer(**config) as producer:  # type: ignore[arg-type]
            if "transactional_id" in config:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("t", VALUE)
            else:
                producer.send("t", VALUE)
                producer.flush()
            yield db, producer


def transactional(folder: Path, records: int, size: int) -> float:
    """Records a second by `send`, `size` in each transaction."""
    with producing(folder, transactional_id="bench") as (_, producer):
        return transactional_rate(producer, records, size)


def transactional_rate(producer: eosdb.Producer, records: int, size: int) -> float:
    start = perf_counter()
    for _ in range(0, records, size):
        with producer.transaction():
            for _ in range(size):
                producer.send("t", VALUE)
    return records / (perf_counter() - start)


def idempotent(folder: Path, records: int, size: int) -> float:
    """Records a second by `send` without transactions, flushed after each `size`."""
    config = BATCHED if size > 1 else {}
    with producing(folder, **config) as (_, producer):  # type: ignore[arg-type]
        start = perf_counter()
        for _ in range(0, records, size):
            for _ in range(size):
                producer.send("t", VALUE)
            producer.flush()
        return records / (perf_counter() - start)


def transactional_many(folder: Path, records: int, size: int) -> float:
    """Records a second by `send_many`, `size` in each transaction."""
    with producing(folder, transactional_id="bench") as (_, producer):
        start = perf_counter()
        for _ in range(0, records, size):
            with producer.transaction():
                producer.send_many("t", [VALUE] * size)
        return records / (perf_counter() - start)


def idempotent_many(folder: Path, records: int, size: int) -> float:
    """Records a second by `send_many` without transactions, `size` in each."""
    with producing(folder) as (_, producer):
        start = perf_counter()
        for _ in range(0, records, size):
            producer.send_many("t", [VALUE] * size)
        return records / (perf_counter() - start)


def process(folder: Path, records: int, size: int) -> float:
    """Records a second read from one topic and sent to another, positions in the transaction."""
    with producing(folder, transactional_id="bench") as (db, producer):
        db.admin.create_topic("in")
        with db.producer(**BATCHED) as source:  # type: ignore[arg-type]
            for _ in range(records):
                source.send("in", VALUE)
        with db.consumer("bench", auto_offset_reset="earliest", max_poll_records=size) as consumer:
            consumer.subscribe(["in"])
            start, done = perf_counter(), 0
            while done < records:
                found = consumer.poll()
                done += len(found)
                with producer.transaction():
                    for record in found:
                        producer.send("t", record.value, key=record.key)
                    producer.send_offsets_to_transaction(
                        consumer.position_offsets(), consumer.group_metadata()
                    )
            return done / (perf_counter() - start)


def poll(path: Path, max_poll_records: int = 500, *, check_crcs: bool = True) -> float:
    """Records a second that a new read_committed consumer gets, from the first to the last."""
    with _reading(path, max_poll_records, check_crcs=check_crcs) as consumer:
        return _rate(consumer.poll)


def poll_columns(path: Path, max_poll_records: int = 500, *, check_crcs: bool = True) -> float:
    """The same by `poll_columns`."""
    with _reading(path, max_poll_records, check_crcs=check_crcs) as consumer:
        return _rate(consumer.poll_columns)


@contextmanager
def _reading(path: Path, max_poll_records: int, *, check_crcs: bool) -> Iterator[eosdb.Consumer]:
    config = {"max_poll_records": max_poll_records, "check_crcs": check_crcs}
    with (
        eosdb.connect(path) as db,
        db.consumer(auto_offset_reset="earliest", **config) as consumer,  # type: ignore[arg-type]
    ):
        consumer.assign([eosdb.TopicPartition("t", 0)])
        yield consumer


def _rate(poll: Callable[[], Sized]) -> float:
    start, count = perf_counter(), 0
    while found := len(poll()):
        count += found
    return count / (perf_counter() - start)


def scenario_ms(path: str | Path, times: int) -> float:
    """A user's test of exactly-once behaviour, from a new file to its end: the mean in ms."""
    start = perf_counter()
    for number in range(times):
        scenario(path if path == ":memory:" else Path(path, f"{number}.db"))
    return (perf_counter() - start) / times * 1000


def scenario(path: str | Path) -> None:
    """Two producers of one name: the second fences the first, commits, aborts; a reader sees what held."""
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        old = db.producer(transactional_id="x")
        old.init_transactions()
        old.begin_transaction()
        old.send("t", b"fenced")
        old.flush()
        with db.producer(transactional_id="x") as new:
            new.init_transactions()
            with new.transaction():
                new.send("t", b"committed")
            try:
                old.commit_transaction()
            except eosdb.EosdbError:
                old.close()
            else:
                raise AssertionError("the older producer could commit")
            new.begin_transaction()
            new.send("t", b"aborted")
            new.abort_transaction()
        with db.consumer("g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert [record.value for record in consumer.poll(1_000)] == [b"committed"]
