"""A log as several producers make it by chance: plain records, and transactions that overlap."""

from __future__ import annotations

import random
from collections.abc import Iterator

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.classic import transactional


def random_log(
    db: eosdb.Database,
    rng: random.Random,
    steps: int,
    *,
    partitions: int = 1,
    producers: int = 3,
    version: int = 2,
) -> Iterator[None]:
    """Goes on in the topic "t" step by step. Values name their transaction; some stay open."""
    made = [transactional(db, f"p{i}", version) for i in range(producers)]
    begun = 0
    values: dict[eosdb.Producer, str] = {}
    for _ in range(steps):
        producer, partition = rng.choice(made), rng.randrange(partitions)
        match rng.randrange(4):
            case 0:
                plain = RecordBatch([Record(value=b"plain")] * rng.randrange(1, 4))
                db.broker.append(TopicPartition("t", partition), plain)
            case 1 if producer in values:
                del values[producer]
                rng.choice((producer.commit_transaction, producer.abort_transaction))()
            case _:
                if producer not in values:
                    producer.begin_transaction()
                    begun += 1
                for _ in range(rng.randrange(1, 4)):
                    value = values.setdefault(producer, f"transaction {begun}")
                    producer.send("t", value, partition=partition)
                producer.flush()
        yield
