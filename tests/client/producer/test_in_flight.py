"""What is on its way: at most five batches of a partition, repeated in order, expired, split, renumbered.

Method: a transport whose answers the test gives by hand, in any order, or never.
"""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, ProduceResult, TopicPartition
from eosdb.client.transport import DirectTransport, Exchange, T
from eosdb.errors import (
    ApiError,
    InvalidProducerEpochError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
)
from eosdb.model.requests import Request
from tests.readers import committed_values

TP = TopicPartition("t", 0)


class ByHand(DirectTransport):
    """Keeps produce requests until the test lets them arrive; everything else is direct."""

    def __init__(self, db: eosdb.Database) -> None:
        super().__init__(db.broker)
        self._db = db
        self.waiting: list[tuple[Exchange[Any], Request[Any]]] = []
        self.is_open = False

    def submit(self, request: Request[T]) -> Exchange[T]:
        if request.name != "produce" or self.is_open:
            return super().submit(request)
        exchange = Exchange[T]()
        self.waiting.append((exchange, request))
        return exchange

    def arrive(self, number: int = 0) -> None:
        """The request reaches the broker, and its answer comes back."""
        exchange, request = self.waiting.pop(number)
        exchange.carry_out(request, self._db.broker)

    def lose_answer(self, number: int = 0) -> None:
        """The request reaches the broker, and its answer is lost."""
        self.carry_out(self.waiting.pop(number)[1])

    def carry_out(self, request: Request[Any]) -> None:
        """It arrives, and nobody waits for it."""
        Exchange[Any]().carry_out(request, self._db.broker)

    def refuse(self, error: ApiError, number: int = 0, tp: TopicPartition = TP) -> None:
        exchange, _ = self.waiting.pop(number)
        exchange._answer = {tp: ProduceResult(error=error)}
        exchange.done = True

    def lose(self, number: int = 0) -> None:
        """The request never arrives, and nobody says so."""
        self.waiting.pop(number)


class Scene:
    """One producer with a batch for each record."""

    def __init__(self, db: eosdb.Database, clock: ManualClock, **config: Any) -> None:
        self.db, self.clock = db, clock
        db.admin.create_topic("t", partitions=2)
        self.network = ByHand(db)
        settings = {"batch_size": 1, "retry_backoff_ms": 10, "request_timeout_ms": 1_000, **config}
        self.producer = db.producer(transport=self.network, **settings)
        self.futures: list[Any] = []

    def send(self, *values: str) -> None:
        self.futures += [self.producer.send("t", value, partition=0) for value in values]

    def run(self, ms: int = 0) -> None:
        self.clock.advance(ms)
        self.producer._sender.run_once(self.clock.monotonic_ms())

    def arrive(self, number: int = 0) -> None:
        self.network.arrive(number)
        self.run()

    def finish(self) -> list[bytes | None]:
        """The network is well again."""
        self.network.is_open = True
        while self.network.waiting:
            self.network.arrive()
        self.producer.flush()
        return committed_values(self.db, TP)

    def warm_up(self) -> None:
        """The partition knows the producer."""
        self.send("0")
        self.arrive()


@pytest.fixture
def scene(db: eosdb.Database, clock: ManualClock) -> Scene:
    return Scene(db, clock)


@pytest.fixture
def expiring(db: eosdb.Database, clock: ManualClock) -> Scene:
    return Scene(db, clock, delivery_timeout_ms=1_000, request_timeout_ms=900)


def test_what_overtakes_is_refused_and_repeated_in_order(scene: Scene) -> None:
    scene.warm_up()
    scene.send("1", "2", "3")
    scene.arrive(2)
    scene.arrive(1)
    scene.run(10)
    assert len(scene.network.waiting) == 1, "the others wait until the first has been answered"
    scene.arrive()
    scene.run()
    assert len(scene.network.waiting) == 1
    assert scene.finish() == [b"0", b"1", b"2", b"3"]


def test_a_late_refusal_of_what_overtook_is_no_gap(scene: Scene) -> None:
    """The refusal comes after the answer of the batch before it: by then it is the first."""
    scene.warm_up()
    scene.send("1", "2")
    exchange, request = scene.network.waiting.pop()
    exchange.carry_out(request, scene.db.broker)
    exchange.done = False  # On its way back.
    scene.arrive(0)
    exchange.done = True
    scene.run()
    assert not scene.futures[2].done()
    assert scene.finish() == [b"0", b"1", b"2"]


def test_what_is_not_answered_in_time_is_sent_again_under_the_same_sequence(scene: Scene) -> None:
    scene.warm_up()
    scene.send("1")
    scene.network.lose_answer()
    scene.send("2")
    assert scene.finish() == [b"0", b"1", b"2"]


def test_a_lost_request_is_given_up_after_its_timeout(scene: Scene) -> None:
    scene.warm_up()
    scene.send("1")
    scene.network.lose()
    scene.run(999)
    assert scene.network.waiting == []
    scene.run(1)
    scene.run(9)
    assert scene.network.waiting == [], "retry_backoff_ms"
    scene.run(1)
    assert len(scene.network.waiting) == 1
    assert scene.finish() == [b"0", b"1"]


def one_that_expires(scene: Scene, *behind: str) -> list[Request[Any]]:
    """Batch 1 gets no answer until it has expired at 1000 ms; the others are sent at 200 ms and get none
    either. Returns what was on its way, at 1110 ms, when the first of the others is sent again."""
    scene.warm_up()
    scene.send("1")
    scene.run(200)
    scene.send(*behind)
    late = [request for _, request in scene.network.waiting]
    scene.network.waiting.clear()
    scene.run(700)
    scene.run(10)
    scene.network.lose()
    scene.run(90)
    assert isinstance(scene.futures[1]._batch.error, RequestTimedOutError)
    scene.send("new")
    assert scene.network.waiting == [], "nothing new while a sequence is unresolved"
    scene.run(100)
    scene.run(10)
    return late


def test_an_expired_batch_that_had_arrived_is_resolved_by_the_next(expiring: Scene) -> None:
    late = one_that_expires(expiring, "2")
    expiring.network.carry_out(late[0])
    expiring.arrive()
    assert expiring.finish() == [b"0", b"1", b"2", b"new"]
    assert {r.producer_epoch for r in expiring.db.broker.fetch(TP, 0).records} == {0}


def test_behind_an_expired_batch_what_may_be_stored_is_not_sent_under_another_identity(
    expiring: Scene,
) -> None:
    """Otherwise 3 would be stored twice when everything arrives late, as it does here."""
    late = one_that_expires(expiring, "2", "3")
    expiring.arrive()
    for request in late:
        expiring.network.carry_out(request)
    values = expiring.finish()
    assert values == [b"0", b"1", b"2", b"3", b"new"], "late, and once"
    failed = [future.exception() is not None for future in expiring.futures]
    assert failed == [False, True, True, True, False]


def test_so_it_is_behind_a_batch_that_expires_while_its_first_request_is_on_its_way(
    expiring: Scene,
) -> None:
    """It waited for a place in the window, so it expires before its request does."""
    expiring.warm_up()
    expiring.send(*"abcde", "1")
    expiring.run(200)
    for _ in "abcde":
        expiring.arrive()
    expiring.send("2", "3")
    late = [request for _, request in expiring.network.waiting]
    expiring.network.waiting.clear()
    assert len(late) == 3
    expiring.run(800)
    expiring.send("new")
    expiring.run(100)
    expiring.run(10)
    expiring.arrive()
    for request in late:
        expiring.network.carry_out(request)
    values = expiring.finish()
    assert values == [b"0", *(b"%c" % name for name in b"abcde"), b"1", b"2", b"3", b"new"]
    failed = [future.exception() is not None for future in expiring.futures]
    assert failed == [False] * 6 + [True] * 3 + [False]


def test_an_expired_batch_that_never_arrived_costs_an_epoch(
    db: eosdb.Database, clock: ManualClock
) -> None:
    scene = Scene(db, clock, delivery_timeout_ms=1_000, request_timeout_ms=300)
    scene.warm_up()
    scene.send("1")
    scene.network.lose()
    scene.run(1_000)
    assert isinstance(scene.futures[1].exception(), RequestTimedOutError)
    scene.send("2")
    assert scene.finish() == [b"0", b"2"]
    assert [(r.producer_epoch, r.sequence) for r in db.broker.fetch(TP, 0).records] == [
        (0, 0), (1, 0),
    ]  # fmt: skip


def test_a_gap_before_everything_else_fails_the_batch_and_renumbers_those_behind_it(
    scene: Scene,
) -> None:
    scene.warm_up()
    scene.send("1", "2", "3")
    scene.network.refuse(OutOfOrderSequenceNumberError("there is a gap"))
    scene.network.refuse(OutOfOrderSequenceNumberError("there is a gap"))
    scene.network.refuse(OutOfOrderSequenceNumberError("there is a gap"))
    scene.run()
    assert isinstance(scene.futures[1].exception(), OutOfOrderSequenceNumberError)
    assert scene.finish() == [b"0", b"2", b"3"]
    told = [(r.producer_epoch, r.sequence) for r in scene.db.broker.fetch(TP, 0).records]
    assert told == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "error", [UnknownProducerIdError("who?"), InvalidProducerEpochError("old")]
)
def test_a_producer_that_is_not_known_takes_another_epoch_and_loses_nothing(
    scene: Scene, error: ApiError
) -> None:
    scene.warm_up()
    scene.send("1", "2")
    scene.network.refuse(error)
    scene.network.refuse(error)
    scene.run()
    assert scene.finish() == [b"0", b"1", b"2"]
    assert {r.producer_epoch for r in scene.db.broker.fetch(TP, 1).records} == {1}


def test_a_refused_batch_leaves_the_others_alone(scene: Scene) -> None:
    scene.warm_up()
    scene.send("1", "2", "3")
    scene.network.refuse(TopicAuthorizationFailedError("not you"), 0)
    scene.run()
    assert isinstance(scene.futures[1].exception(), TopicAuthorizationFailedError)
    while scene.network.waiting:
        scene.arrive()
    assert scene.finish() == [b"0", b"2", b"3"]


def test_partitions_of_different_epochs_that_are_refused_at_once_lose_nothing_behind(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """Sequences that begin anew in an epoch that a partition has seen would be taken for repeats."""
    scene, other = Scene(db, clock), TopicPartition("t", 1)
    no = TopicAuthorizationFailedError("no")

    def send(value: str, partition: int = 0) -> None:
        scene.futures.append(scene.producer.send("t", value, partition=partition))

    for partition in (0, 1):
        send("0", partition)
        scene.arrive()
    send("refused", 1)
    send("refused")
    scene.network.refuse(no, 1)
    scene.run()
    send("1")
    scene.arrive(1)
    send("refused")
    scene.network.refuse(no, 1)
    scene.network.refuse(no, tp=other)
    scene.run()
    send("2")
    send("1", 1)
    assert scene.finish() == [b"0", b"1", b"2"]
    assert committed_values(db, other) == [b"0", b"1"]


def test_a_retry_limit_is_kept_without_idempotence(db: eosdb.Database, clock: ManualClock) -> None:
    scene = Scene(db, clock, enable_idempotence=False, retries=2)
    scene.send("0")
    attempts = 0
    while scene.network.waiting:
        attempts += 1
        scene.network.refuse(NotEnoughReplicasError("not now"))
        scene.run()
        scene.run(10)
    assert attempts == 3
    assert isinstance(scene.futures[0].exception(), NotEnoughReplicasError)


def test_acks_0_waits_for_nothing(db: eosdb.Database, clock: ManualClock) -> None:
    scene = Scene(db, clock, enable_idempotence=False, acks=0)
    scene.send("0")
    assert scene.futures[0].result().offset == -1
