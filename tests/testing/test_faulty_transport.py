"""The bad network: each fault happens as often as it is asked for, to the requests it is asked for, and the
same seed does the same."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.client.transport import Exchange
from eosdb.errors import NetworkExceptionError
from eosdb.model.requests import Offsets, Produce
from eosdb.testing import FaultyTransport

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def send(
    network: FaultyTransport, value: bytes
) -> Exchange[dict[TopicPartition, eosdb.ProduceResult]]:
    batch = RecordBatch([Record(value=value)])
    return network.submit(Produce({TP: batch}))


def values(db: eosdb.Database) -> list[bytes | None]:
    return [record.value for record in db.broker.fetch(TP, 0).records]


def test_without_faults_the_answer_is_there_at_once(db: eosdb.Database) -> None:
    exchange = send(FaultyTransport(db.broker), b"v")
    assert exchange.done
    assert exchange.answer[TP].base_offset == 0


def test_a_lost_request_is_not_carried_out(db: eosdb.Database) -> None:
    exchange = send(FaultyTransport(db.broker, lose_request=1), b"v")
    assert isinstance(exchange.error, NetworkExceptionError)
    assert values(db) == []


def test_a_request_whose_answer_is_lost_was_carried_out(db: eosdb.Database) -> None:
    exchange = send(FaultyTransport(db.broker, lose_response=1), b"v")
    assert isinstance(exchange.error, NetworkExceptionError)
    assert values(db) == [b"v"]


def test_a_silent_loss_is_never_answered(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, lose_response=1, silent=1)
    exchange = send(network, b"v")
    clock.advance(10**9)
    assert network.poll() is None
    assert not exchange.done


def test_a_repeated_request_arrives_later(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, duplicate=1)
    send(network, b"v")
    assert values(db) == [b"v"]
    wait = network.poll()
    assert wait is not None
    clock.advance(wait)
    assert network.poll() is None
    assert values(db) == [b"v", b"v"]


def test_requests_overtake_each_other(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, seed=4, reorder=0.5)
    for i in range(20):
        send(network, b"%02d" % i)
    clock.advance(1_000)
    network.poll()
    assert values(db) != sorted(values(db), key=lambda value: value or b"")
    assert sorted(filter(None, values(db))) == [b"%02d" % i for i in range(20)]


def test_each_way_takes_its_time(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, delay_ms=(100, 100))
    exchange = send(network, b"v")
    clock.advance(99)
    assert (network.poll(), values(db)) == (1, [])
    clock.advance(1)
    assert (network.poll(), values(db), exchange.done) == (100, [b"v"], False)
    clock.advance(100)
    assert (network.poll(), exchange.done) == (None, True)


def test_only_what_is_named_is_hit(db: eosdb.Database) -> None:
    network = FaultyTransport(db.broker, lose_request=1, only=("end_txn",))
    assert send(network, b"v").answer[TP].base_offset == 0


def test_the_same_seed_does_the_same(db: eosdb.Database, clock: ManualClock) -> None:
    def told(seed: int) -> list[str]:
        network = FaultyTransport(
            db.broker, seed, lose_request=0.3, lose_response=0.3, duplicate=0.3, reorder=0.3
        )
        for _ in range(20):
            send(network, b"v")
        network.deliver_all()
        return [line.partition(": ")[2] for line in network.history]

    assert told(1) == told(1) != told(2)


def test_what_the_broker_refuses_arrives_as_its_answer(db: eosdb.Database) -> None:
    network = FaultyTransport(db.broker)
    exchange = network.submit(Offsets(TopicPartition("no", 0)))
    assert isinstance(exchange.error, eosdb.UnknownTopicOrPartitionError)


@pytest.mark.parametrize(
    "faults",
    [{"lose_request": 1.1}, {"reorder": -0.1}, {"duplicate": "often"}, {"delay_ms": (5, 1)}],
    ids=str,
)
def test_what_is_no_probability_is_refused(db: eosdb.Database, faults: dict[str, object]) -> None:
    with pytest.raises(eosdb.ConfigError):
        FaultyTransport(db.broker, **faults)  # type: ignore[arg-type]


def test_consumers_read_over_it(db: eosdb.Database) -> None:
    db.producer().send("t", b"v").result()
    network = FaultyTransport(db.broker, 1, lose_request=0.5, lose_response=0.3, delay_ms=(0, 9))
    consumer = db.consumer("g", transport=network, auto_offset_reset="earliest")
    consumer.assign([TP])
    assert [record.value for record in consumer.poll()] == [b"v"]
    consumer.commit()
    assert consumer.committed([TP])[TP].offset == 1
    assert network.counts["lose_request"] > 0
