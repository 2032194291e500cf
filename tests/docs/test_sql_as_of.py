"""The page's query for "as of a time" against the real thing: a file that is restored to that time.

Random histories of transactions that commit, abort, are fenced, time out and stay open, beside plain
producers, deleted records and a topic that is deleted and made again. At many instants the query on the
living file must give what `committed_records` gives in the restored one. The clock often stands still,
so many events share a millisecond.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, TopicPartition
from tests.classic import transactional
from tests.conftest import START_MS
from tests.docs.test_sql_page import QUERIES

pytestmark = pytest.mark.slow

(AS_OF,) = (query.sql for query in QUERIES if "yesterday at noon" in query.title)
NOON = "strftime('%s', 'now', 'start of day', '-12 hours') * 1000"
COMMITTED = """
SELECT partition, "offset", CAST(key AS TEXT), CAST(value AS TEXT) FROM committed_records
WHERE topic = 'orders' ORDER BY partition, "offset"
"""
IDS = ("red", "green", "blue")
PARTITIONS = 2
STEPS = 60


class History:
    """Random work on one file; `times` are instants at which somebody could have looked."""

    def __init__(self, path: Path, seed: int, version: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(start_ms=START_MS)
        config = BrokerConfig(transaction_version=version)
        self.db = eosdb.connect(path, clock=self.clock, durability="off", config=config)
        self.db.admin.create_topic("orders", partitions=PARTITIONS)
        self.db.admin.create_topic("others")
        self.plain = self.db.producer()
        self.version = version
        self.open: dict[str, Any] = {}
        self.times: list[int] = []
        self.count = 0

    def run(self) -> None:
        steps = (self.send, self.send, self.send_in_transaction, self.send_in_transaction,
                 self.end, self.end, self.wait, self.wait, self.succeed, self.delete)  # fmt: skip
        for step in range(STEPS):
            if step == STEPS // 4 and self.random.random() < 0.5:
                self.make_again()
            self.random.choice(steps)()
            self.times.append(self.clock.time_ms())

    def wait(self) -> None:
        self.clock.advance(self.random.choice((0, 1, 500, 20_000, 61_000)))
        if self.random.random() < 0.3:
            self.db.housekeeping()

    def send(self, producer: Any = None) -> None:
        topic = self.random.choice(("orders", "orders", "orders", "others"))
        partition = self.random.randrange(PARTITIONS) if topic == "orders" else 0
        sender = producer or self.plain
        for _ in range(self.random.randint(1, 3)):
            self.count += 1
            sender.send(topic, f"v{self.count}", key=f"k{self.count % 7}", partition=partition)
        sender.flush()

    def send_in_transaction(self) -> None:
        name = self.random.choice(IDS)
        if name not in self.open:
            self.open[name] = transactional(self.db, name, self.version)
            self.open[name].begin_transaction()
        with contextlib.suppress(eosdb.EosdbError):
            self.send(self.open[name])

    def end(self) -> None:
        if self.open:
            producer = self.open.pop(self.random.choice(sorted(self.open)))
            with contextlib.suppress(eosdb.EosdbError):
                if self.random.random() < 0.7:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

    def succeed(self) -> None:
        """Another producer takes the id over, and leaves the first one with it."""
        transactional(self.db, self.random.choice(IDS), self.version)

    def delete(self) -> None:
        if self.random.random() < 0.2:
            tp = TopicPartition("orders", self.random.randrange(PARTITIONS))
            offsets = self.db.broker.offsets(tp)
            before = self.random.randint(offsets.log_start_offset, offsets.log_end_offset)
            self.db.broker.delete_records(tp, before)

    def make_again(self) -> None:
        for name in list(self.open):
            producer = self.open.pop(name)
            with contextlib.suppress(eosdb.EosdbError):
                producer.abort_transaction()
        self.db.admin.delete_topic("orders")
        self.db.admin.create_topic("orders", partitions=PARTITIONS)
        self.plain = self.db.producer()


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("version", [1, 2])
def test_the_past_is_what_a_restored_file_shows(
    tmp_path: Path, seeds: list[int], version: int
) -> None:
    assert AS_OF.count(NOON) == 1
    sizes = set()
    for seed in (2 * seed + number for seed in seeds for number in range(2)):
        path = tmp_path / f"{seed}.db"
        history = History(path, seed, version)
        history.run()
        for i, time in enumerate(history.random.sample(history.times, 8)):
            then = tmp_path / f"{seed}-{i}.db"
            history.db.restore_to(then, timestamp=time)
            expected = rows(then, COMMITTED)
            assert rows(path, AS_OF.replace(NOON, str(time))) == expected, (seed, time)
            sizes.add(len(expected))
        now = history.clock.time_ms()
        assert rows(path, AS_OF.replace(NOON, str(now))) == rows(path, COMMITTED), seed
        history.db.close()
    assert len(sizes) > 1, "the histories must not all look alike"
