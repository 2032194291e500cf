"""The bad network: each fault happens as often as it is asked for, to the requests it is asked for, and the
same seed does the same."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.errors import NetworkExceptionError
from eosdb.model.requests import Offsets, Produce
from eosdb.testing import FaultyTransport

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def send(network: FaultyTransport, value: bytes) -> Any:
    (answer,) = network.ask([Produce({TP: RecordBatch([Record(value=value)])})])
    return answer


def values(db: eosdb.Database) -> list[bytes | None]:
    return [record.value for record in db.broker.fetch(TP, 0).records]


def test_without_faults_the_broker_answers(db: eosdb.Database) -> None:
    assert send(FaultyTransport(db.broker), b"v")[TP].base_offset == 0


def test_each_request_of_a_call_has_its_answer(db: eosdb.Database) -> None:
    requests = [Produce({TP: RecordBatch([Record(value=b"%d" % i)])}) for i in range(3)]
    answers = FaultyTransport(db.broker).ask(requests)
    assert [answer[TP].base_offset for answer in answers] == [0, 1, 2]


def test_a_lost_request_is_not_carried_out(db: eosdb.Database) -> None:
    assert isinstance(send(FaultyTransport(db.broker, lose_request=1), b"v"), NetworkExceptionError)
    assert values(db) == []


def test_a_request_whose_answer_is_lost_was_carried_out(db: eosdb.Database) -> None:
    network = FaultyTransport(db.broker, lose_response=1)
    assert isinstance(send(network, b"v"), NetworkExceptionError)
    assert values(db) == [b"v"]


def test_a_silent_loss_is_noticed_by_the_time_out(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, lose_response=1, silent=1)
    network.request_timeout_ms = 700
    before = clock.monotonic_ms()
    assert isinstance(send(network, b"v"), NetworkExceptionError)
    assert clock.monotonic_ms() - before == 700


def test_a_repeated_request_arrives_later(db: eosdb.Database, clock: ManualClock) -> None:
    network = FaultyTransport(db.broker, duplicate=1)
    send(network, b"v")
    network.deliver_due()
    assert values(db) == [b"v"]
    clock.advance(10)
    network.deliver_due()
    assert values(db) == [b"v", b"v"]
    assert network.deliver_all() == 0


def test_a_reordered_request_is_lost_for_its_client_and_arrives_behind_later_ones(
    db: eosdb.Database, clock: ManualClock
) -> None:
    network = FaultyTransport(db.broker, seed=4, reorder=0.5)
    answers = [send(network, b"%02d" % i) for i in range(20)]
    clock.advance(1_000)
    network.deliver_due()
    assert values(db) != sorted(values(db), key=lambda value: value or b"")
    assert sorted(filter(None, values(db))) == [b"%02d" % i for i in range(20)]
    late = sum(isinstance(answer, NetworkExceptionError) for answer in answers)
    assert late == network.counts["reorder"] > 3


def test_each_way_takes_its_time(db: eosdb.Database, clock: ManualClock) -> None:
    before = clock.monotonic_ms()
    send(FaultyTransport(db.broker, delay_ms=(100, 100)), b"v")
    assert clock.monotonic_ms() - before == 200


def test_a_request_that_takes_longer_than_the_time_out_arrives_all_the_same(
    db: eosdb.Database, clock: ManualClock
) -> None:
    network = FaultyTransport(db.broker, delay_ms=(100, 100))
    network.request_timeout_ms = 60
    before = clock.monotonic_ms()
    assert isinstance(send(network, b"v"), NetworkExceptionError)
    assert (clock.monotonic_ms() - before, values(db)) == (60, [])
    clock.advance(40)
    network.deliver_due()
    assert values(db) == [b"v"]


def test_only_what_is_named_is_hit(db: eosdb.Database) -> None:
    network = FaultyTransport(db.broker, lose_request=1, only=("end_txn",))
    assert send(network, b"v")[TP].base_offset == 0


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
    (answer,) = FaultyTransport(db.broker).ask([Offsets(TopicPartition("no", 0))])
    assert isinstance(answer, eosdb.UnknownTopicOrPartitionError)


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
