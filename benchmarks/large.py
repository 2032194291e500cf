"""Files with a past: so many records in so many finished transactions, made by the public API.

They are made without syncing, which changes how long it takes and not what is in them, and they are kept
where `--large-file` says, for making ten million records takes a while.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import eosdb
from benchmarks.measure import Settings
from benchmarks.raw import VALUE

PARTITIONS = 4
PRODUCERS = 20
ABORTED_EVERY = 20
"""Each so-manieth transaction is aborted."""


class Shape(NamedTuple):
    """What the transactions of a file are like."""

    sizes: tuple[int, ...]
    """The number of records of each, in turn."""
    partitions: int = PARTITIONS
    """Of each topic."""
    topics: tuple[str, ...] = ("t",)
    groups: tuple[str, ...] = ()
    """Consumer groups, of which each transaction commits an offset."""


def large(settings: Settings) -> Path:
    """The file of `--large-records`, ten to a transaction."""
    return _made(settings.large_file, settings.large_records, Shape((10,)))


def of(
    settings: Settings, records: int, per_transaction: int = 10, partitions: int = PARTITIONS
) -> Path:
    """A file with this many records, for any case that needs one."""
    name = f"records-{records}-by-{per_transaction}-in-{partitions}.db"
    return _made(settings.cache / name, records, Shape((per_transaction,), partitions))


def _made(path: Path, records: int, shape: Shape) -> Path:
    if path.exists():
        with eosdb.connect(path) as db:
            ends = [
                db.broker.offsets(eosdb.TopicPartition("t", number)).log_end_offset
                for number in range(shape.partitions)
            ]
        if sum(ends) < records:
            raise ValueError(
                f"{path} has fewer than {records:,} records; give another --large-file"
            )
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    _remove(unfinished)
    make(unfinished, records, shape)
    unfinished.rename(path)
    _remove(unfinished)
    return path


def _remove(path: Path) -> None:
    """The file and what SQLite and eosdb keep beside it."""
    for leftover in path.parent.glob(path.name + "*"):
        leftover.unlink()


def make(path: Path, records: int, shape: Shape) -> None:
    """The transactions take turns over producers, partitions and sizes, one in twenty is aborted. Each of a
    group's commits stands at the end of what its producer has just sent."""
    start, done, transactions = perf_counter(), 0, 0
    with eosdb.connect(path, durability="off") as db:
        for topic in shape.topics:
            db.admin.create_topic(topic, shape.partitions, {"retention.ms": -1})
        partitions = [
            eosdb.TopicPartition(topic, number)
            for number in range(shape.partitions)
            for topic in shape.topics
        ]
        producers = [db.producer(transactional_id=f"maker-{i}") for i in range(PRODUCERS)]
        for producer in producers:
            producer.init_transactions()
        while done < records:
            producer = producers[transactions % PRODUCERS]
            turn = transactions // PRODUCERS
            topic, partition = partitions[turn % len(partitions)]
            count = shape.sizes[turn % len(shape.sizes)]
            producer.begin_transaction()
            producer.send_many(topic, [VALUE] * count, partition=partition)
            if (transactions + turn) % ABORTED_EVERY == 0:
                producer.flush()  # What has not been sent leaves no trace when it is aborted.
                producer.abort_transaction()
            else:
                for group in shape.groups:
                    end = db.broker.offsets(eosdb.TopicPartition(topic, partition)).log_end_offset
                    offset = eosdb.OffsetAndMetadata(end)
                    producer.send_offsets_to_transaction(
                        {eosdb.TopicPartition(topic, partition): offset}, group
                    )
                producer.commit_transaction()
            done, transactions = done + count, transactions + 1
            if transactions % 10_000 == 0:
                rate = done / (perf_counter() - start)
                print(f"  {path.stem}: {done:,} records, {rate:,.0f} a second", file=sys.stderr)
        for producer in producers:
            producer.close()


@contextmanager
def with_one_open(path: Path) -> Iterator[eosdb.Database]:
    """The file, with a transaction open in its first partition."""
    with eosdb.connect(path) as db, db.producer(transactional_id="holder") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", VALUE, partition=0)
        producer.flush()
        yield db
        producer.abort_transaction()
