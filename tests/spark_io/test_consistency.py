"""While writers commit and abort, each read equals what a consumer gets that ends at the same offsets.

`--seeds 25` makes 50 reads. `tests/spark/test_jdbc.py` does the same by JDBC.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.spark_io.source import EosdbDataSource
from tests.spark_io.like_spark import tables, texts
from tests.spark_io.making import TP0, TP1

pytestmark = pytest.mark.slow

Seen = dict[TopicPartition, list[tuple[int, bytes]]]


@pytest.fixture
def written(db_path: Path) -> Iterator[Path]:
    """Two transactional writers and a plain one are at work until the test ends."""
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
    stop = threading.Event()

    def transact(name: str) -> None:
        rng = random.Random(name)
        with eosdb.connect(db_path, durability="off") as db:
            producer = db.producer(transactional_id=name)
            producer.init_transactions()
            number = 0
            while not stop.wait(0.003):
                producer.begin_transaction()
                for partition in (0, 1):
                    for _ in range(rng.randrange(1, 4)):
                        producer.send("orders", f"{name} {number}", partition=partition)
                        producer.flush()
                producer.commit_transaction() if rng.random() < 0.7 else producer.abort_transaction()
                number += 1

    def append() -> None:
        with eosdb.connect(db_path, durability="off") as db:
            while not stop.wait(0.005):
                db.broker.append(TP0, RecordBatch([Record(value=b"plain")]))

    threads = [threading.Thread(target=transact, args=(name,)) for name in ("a", "b")]
    threads.append(threading.Thread(target=append))
    for thread in threads:
        thread.start()
    yield db_path
    stop.set()
    for thread in threads:
        thread.join()


def consumed(path: Path, ends: dict[TopicPartition, int]) -> Seen:
    """What a read_committed consumer gets below these offsets."""
    seen: Seen = {tp: [] for tp in ends}
    with (
        eosdb.connect(path, read_only=True) as db,
        db.consumer(auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign(ends)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for record in consumer.poll():
                tp = TopicPartition(record.topic, record.partition)
                if record.offset < ends[tp]:
                    assert isinstance(record.value, bytes)
                    seen[tp].append((record.offset, record.value))
    return seen


def read(path: Path, **options: object) -> Seen:
    """By the data source, in several tasks."""
    names = ("partition", "offset", "value")
    given = {"path": str(path), "minPartitions": "4", **texts(options)}
    reader = EosdbDataSource(given).reader(
        StructType([StructField(n, BinaryType()) for n in names])
    )
    seen: Seen = {TP0: [], TP1: []}
    for table in tables(reader, reader.partitions()):
        for row in table.to_pylist():
            seen[TopicPartition("orders", row["partition"])].append((row["offset"], row["value"]))
    return {tp: sorted(found) for tp, found in seen.items()}


def no_transaction_in_part(seen: Seen) -> None:
    names = [{value for _, value in found if value != b"plain"} for found in seen.values()]
    assert names[0] == names[1], "every transaction wrote to both partitions"


def test_the_data_source_reads_what_a_pinned_consumer_reads(
    written: Path, request: pytest.FixtureRequest
) -> None:
    for _ in range(2 * request.config.getoption("--seeds")):
        with eosdb.connect(written, read_only=True) as db:
            ends = {tp: end for tp, (_, end) in db.admin.consistent_cut().items()}
        wanted = {"orders": {str(tp.partition): end for tp, end in ends.items()}}
        pinned = read(written, endingOffsets=json.dumps(wanted))
        assert pinned == consumed(written, ends)
        no_transaction_in_part(pinned)
        no_transaction_in_part(read(written))
