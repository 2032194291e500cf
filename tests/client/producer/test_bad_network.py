"""Producers on a bad network: everything arrives exactly once and in order, and what Jepsen found in
Kafka's own protocol is shown under version 1 and impossible under version 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.testing import FaultyTransport
from tests.classic import ClassicProducer
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


def test_without_idempotence_what_is_repeated_may_be_stored_twice(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    network = FaultyTransport(db.broker, seed=3, **BAD, delay_ms=(0, 30))
    producer = db.producer(transport=network, enable_idempotence=False, batch_size=100)
    for number in range(500):
        producer.send("t", str(number))
    producer.flush()
    network.deliver_all()
    (values,) = stored(db, 1)
    assert len(values) > len(set(values)) == 500
    assert list(dict.fromkeys(values)) == sorted(set(values), key=int), "the first of each in order"


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


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_commit_meets_a_later_transaction(db: eosdb.Database, version: int) -> None:
    """Jepsen's report on Bufstream 0.1.0: torn transactions, and aborted ones that are read."""
    producer, arrive_late = one_transaction(db, version, committed=True)
    producer.begin_transaction()
    producer.send("t", "second, half", partition=0)
    producer.flush()
    arrive_late()
    if version == 1:
        assert stored(db, 2) == [["first", "second, half"], []], "nobody committed it"
        producer.send("t", "second, other half", partition=1)
        producer.abort_transaction()
        assert stored(db, 2) == [["first", "second, half"], []], "torn, and an aborted read"
        return
    assert stored(db, 2) == [["first"], []]
    producer.send("t", "second, other half", partition=1)
    producer.commit_transaction()
    assert stored(db, 2) == [["first", "second, half"], ["second, other half"]]


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_abort_meets_a_later_transaction(db: eosdb.Database, version: int) -> None:
    """The same with an abort: half of what the later transaction committed is lost, without an error."""
    producer, arrive_late = one_transaction(db, version, committed=False)
    producer.begin_transaction()
    producer.send("t", "second, half", partition=0)
    producer.flush()
    arrive_late()
    producer.send("t", "second, other half", partition=1)
    producer.commit_transaction()
    lost = [] if version == 1 else ["second, half"]
    assert stored(db, 2) == [lost, ["second, other half"]]


def one_transaction(
    db: eosdb.Database, version: int, *, committed: bool
) -> tuple[Any, Callable[[], object]]:
    """A producer that has ended one transaction, and a function by which its `end_txn` arrives again."""
    db.admin.create_topic("t", partitions=2)
    network = FaultyTransport(db.broker, 1, duplicate=1, only=("end_txn",))
    producer: Any = ClassicProducer(db, "a")
    if version == 1:
        producer.init_transactions()
    else:
        producer = transactional(db, transport=network)
    producer.begin_transaction()
    producer.send("t", "first", partition=0)
    producer.flush()
    late = producer.end_request(committed=committed) if version == 1 else None
    if committed:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    return producer, partial(db.broker.ask, late) if late else network.deliver_all


def test_a_producer_needs_transaction_version_2(db_path: Path) -> None:
    """The server speaks version 1, too."""
    config = eosdb.BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, config=config) as db:
        producer = db.producer(transactional_id="a")
        with pytest.raises(eosdb.errors.UnsupportedVersionError, match="transaction_version=2"):
            producer.init_transactions()
        assert producer.state == "UNINITIALIZED"


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
