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

import eosdb
from benchmarks.measure import Settings
from benchmarks.raw import VALUE

PARTITIONS = 4
PRODUCERS = 20
ABORTED_EVERY = 20
"""Each so-manieth transaction is aborted."""


def large(settings: Settings) -> Path:
    """The file of `--large-records`, ten to a transaction."""
    return _made(settings.large_file, settings.large_records, 10)


def of(
    settings: Settings, records: int, per_transaction: int = 10, partitions: int = PARTITIONS
) -> Path:
    """A file of so many records, for whoever needs one of this size."""
    name = f"records-{records}-by-{per_transaction}-in-{partitions}.db"
    return _made(settings.cache / name, records, per_transaction, partitions)


def _made(path: Path, records: int, per_transaction: int, partitions: int = PARTITIONS) -> Path:
    if path.exists():
        with eosdb.connect(path) as db:
            ends = [
                db.broker.offsets(eosdb.TopicPartition("t", number)).log_end_offset
                for number in range(partitions)
            ]
        if sum(ends) < records:
            raise ValueError(
                f"{path} has fewer than {records:,} records; give another --large-file"
            )
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    _remove(unfinished)
    make(unfinished, records, per_transaction, partitions)
    unfinished.rename(path)
    _remove(unfinished)
    return path


def _remove(path: Path) -> None:
    """The file and what SQLite and eosdb keep beside it."""
    for leftover in path.parent.glob(path.name + "*"):
        leftover.unlink()


def make(path: Path, records: int, per_transaction: int, partitions: int = PARTITIONS) -> None:
    """The transactions take turns over producers and partitions, one in twenty is aborted."""
    start, transactions = perf_counter(), records // per_transaction
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("t", partitions, {"retention.ms": -1})
        producers = [db.producer(transactional_id=f"maker-{i}") for i in range(PRODUCERS)]
        for producer in producers:
            producer.init_transactions()
        for number in range(transactions):
            producer = producers[number % PRODUCERS]
            partition = number // PRODUCERS % partitions
            producer.begin_transaction()
            for _ in range(per_transaction):
                producer.send("t", VALUE, partition=partition)
            if (number + number // PRODUCERS) % ABORTED_EVERY == 0:
                producer.flush()  # What has not been sent leaves no trace when it is aborted.
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            if (number + 1) % max(transactions // 10, 1_000) == 0:
                rate = (number + 1) * per_transaction / (perf_counter() - start)
                print(
                    f"  {path.stem}: {number + 1:,} transactions, {rate:,.0f} records/s",
                    file=sys.stderr,
                )
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
