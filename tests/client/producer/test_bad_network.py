"""Producers on a bad network: everything arrives exactly once and in order, and what Jepsen found in
Kafka's own protocol is shown under version 1 and impossible under version 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.testing import FaultyTransport
from tests.client.producer.answers import transactional
from tests.readers import committed_values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
PARTITIONS = 3
BAD: dict[str, Any] = {"lose_request": 0.2, "lose_response": 0.2, "duplicate": 0.1, "reorder": 0.3}


def stored(db: eosdb.Database, partitions: int = PARTITIONS) -> list[list[str]]:
    """The committed values of every partition, as text."""
    consumer = db.consumer()
    tps = [TopicPartition("t", i) for i in range(partitions)]
    consumer.assign(tps)
    consumer.seek_to_beginning()
    found: dict[int, list[str]] = {tp.partition: [] for tp in tps}
    while records := consumer.poll(max_records=5_000):
        for record in records:
            assert isinstance(record.value, bytes)
            found[record.partition].append(record.value.decode())
    return [found[i] for i in range(partitions)]


def test_30000_records_of_five_producers_arrive_exactly_once_and_in_order(
    db: eosdb.Database,
) -> None:
    """20 % of requests lost, 20 % of answers, 10 % repeated, reordered and delayed."""
    db.admin.create_topic("t", partitions=PARTITIONS)
    each = 6_000
    networks = [FaultyTransport(db.broker, seed, **BAD, delay_ms=(0, 30)) for seed in range(5)]
    producers = [db.producer(transport=network, batch_size=500) for network in networks]
    futures = []
    for number in range(each):
        for who, producer in enumerate(producers):
            futures.append(producer.send("t", f"{who}:{number}", partition=number % PARTITIONS))
    for producer in producers:
        producer.flush()
    assert all(future.exception() is None for future in futures)
    for network in networks:
        network.deliver_all()
    for fault in BAD:
        assert sum(network.counts[fault] for network in networks) > 20, "the networks were bad"
    for partition, values in enumerate(stored(db)):
        for who in range(5):
            own = [int(v.split(":")[1]) for v in values if v.startswith(f"{who}:")]
            assert own == list(range(partition, each, PARTITIONS))
    assert sum(p.metrics()["duplicate-batches-total"] for p in producers) > 0
    assert db.verify().ok


@pytest.mark.parametrize("idempotent", [True, False])
def test_with_five_in_flight_order_holds_and_without_idempotence_it_does_not(
    db: eosdb.Database, idempotent: bool
) -> None:
    db.admin.create_topic("t")
    network = FaultyTransport(db.broker, seed=3, **BAD, delay_ms=(0, 30))
    producer = db.producer(
        transport=network,
        enable_idempotence=idempotent,
        batch_size=100,
        max_in_flight_requests_per_connection=5,
    )
    for number in range(2_000):
        producer.send("t", str(number))
    producer.flush()
    network.deliver_all()
    (values,) = stored(db, 1)
    expected = [str(number) for number in range(2_000)]
    if idempotent:
        assert values == expected
        return
    assert len(values) > len(set(values)), "some are doubled"
    first_seen = list(dict.fromkeys(values))
    assert first_seen != sorted(first_seen, key=int), "some have overtaken others"


class TickingClock(ManualClock):
    """Time passes by itself, as it does outside of tests: a little with every look."""

    def monotonic_ms(self) -> int:
        self.advance(1)
        return super().monotonic_ms()


def test_an_answer_is_taken_when_it_comes_and_not_at_the_next_timeout(db_path: Path) -> None:
    """Answers also arrive while another request is being sent."""
    clock = TickingClock()
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        for seed in range(20):
            network = FaultyTransport(db.broker, seed, lose_request=0.3, reorder=0.3)
            producer = db.producer(transport=network, batch_size=30, retry_backoff_ms=1)
            before = clock.monotonic_ms()
            for number in range(40):
                producer.send("t", str(number))
            producer.flush()
            assert clock.monotonic_ms() - before < 20_000, "nobody waited for request_timeout_ms"


def test_transactions_on_a_bad_network_are_whole(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=PARTITIONS)
    network = FaultyTransport(
        db.broker, seed=5, **BAD, delay_ms=(0, 30), only=("produce", "end_txn")
    )
    producer = transactional(db, transport=network, batch_size=50)
    committed = []
    for number in range(60):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send("t", str(number), partition=partition)
        if number % 4:
            producer.commit_transaction()
            committed.append(str(number))
        else:
            producer.abort_transaction()
    network.deliver_all()
    assert stored(db) == [committed] * PARTITIONS


def test_the_window_of_a_new_producer_opens_with_its_first_answer(db: eosdb.Database) -> None:
    """A partition takes any first sequence of a producer it does not know, so of two batches that are
    both on their way the second would be stored and the first be lost."""
    db.admin.create_topic("t")
    for seed in range(20):
        network = FaultyTransport(db.broker, seed, lose_request=0.5, delay_ms=(0, 30))
        producer = db.producer(transport=network, batch_size=1)
        futures = [producer.send("t", f"{seed}:{i}") for i in range(4)]
        producer.flush()
        assert [future.result().offset >= 0 for future in futures] == [True] * 4
    assert stored(db, 1) == [[f"{seed}:{i}" for seed in range(20) for i in range(4)]]


class World:
    """A producer whose `end_txn` arrives a second time, late, over a transport that is else fine."""

    def __init__(self, path: Path, clock: ManualClock, version: int) -> None:
        config = eosdb.BrokerConfig(transaction_version=version)
        self.db = eosdb.connect(path, clock=clock, durability="off", config=config)
        self.db.admin.create_topic("t", partitions=2)
        self.network = FaultyTransport(self.db.broker, 1, duplicate=1, only=("end_txn",))
        self.producer = transactional(self.db, transport=self.network)

    def one_transaction(self, value: str, committed: bool) -> None:
        self.producer.begin_transaction()
        self.producer.send("t", value, partition=0)
        self.producer.flush()
        if committed:
            self.producer.commit_transaction()
        else:
            self.producer.abort_transaction()


@pytest.fixture
def world(db_path: Path, clock: ManualClock, version: int) -> Iterator[World]:
    made = World(db_path, clock, version)
    yield made
    made.db.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_commit_meets_a_later_transaction(world: World, version: int) -> None:
    """Jepsen's report on Bufstream 0.1.0: torn transactions, and aborted ones that are read."""
    world.one_transaction("first", committed=True)
    world.producer.begin_transaction()
    world.producer.send("t", "second, half", partition=0)
    world.producer.flush()
    world.network.deliver_all()  # The commit of the first transaction arrives again.
    if version == 1:
        assert stored(world.db, 2) == [["first", "second, half"], []], "nobody committed it"
        world.producer.send("t", "second, other half", partition=1)
        world.producer.flush()
        world.producer.abort_transaction()
        assert stored(world.db, 2) == [["first", "second, half"], []], "torn, and an aborted read"
        return
    assert stored(world.db, 2) == [["first"], []]
    world.producer.send("t", "second, other half", partition=1)
    world.producer.commit_transaction()
    assert stored(world.db, 2) == [["first", "second, half"], ["second, other half"]]


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_abort_meets_a_later_transaction(world: World, version: int) -> None:
    """The same with an abort: half of what the later transaction committed is lost, without an error."""
    world.one_transaction("first", committed=False)
    world.producer.begin_transaction()
    world.producer.send("t", "second, half", partition=0)
    world.producer.flush()
    world.network.deliver_all()
    world.producer.send("t", "second, other half", partition=1)
    world.producer.commit_transaction()
    lost = [] if version == 1 else ["second, half"]
    assert stored(world.db, 2) == [lost, ["second, other half"]]


def test_a_late_batch_of_a_finished_transaction_is_refused(db: eosdb.Database) -> None:
    """Under version 2 also where the partition never heard of the transaction."""
    db.admin.create_topic("t")
    network = FaultyTransport(db.broker, 1, duplicate=1, only=("produce",))
    producer = transactional(db, transport=network)
    for value in ("one", "two"):
        producer.begin_transaction()
        producer.send("t", value)
        producer.commit_transaction()
    producer.begin_transaction()
    network.deliver_all()
    producer.send("t", "three")
    producer.commit_transaction()
    network.deliver_all()
    assert committed_values(db, TP) == [b"one", b"two", b"three"]
    assert network.counts["duplicate"] == 3
