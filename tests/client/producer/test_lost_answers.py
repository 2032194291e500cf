"""A batch whose call was lost or refused: asked for again in order, expired, renumbered.

Method: a transport that does with each Produce what the test has planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, ProduceResult, TopicPartition
from eosdb.client.transport import DirectTransport
from eosdb.errors import (
    ApiError,
    EosdbError,
    InvalidProducerEpochError,
    NetworkExceptionError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
)
from eosdb.model.requests import Produce, Request
from eosdb.model.threads import Fate
from tests.readers import committed_values

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LOST, ANSWER_LOST = "lost", "answer lost"


class Planned(DirectTransport):
    """Loses the next Produce requests or their answers, or refuses all their batches; then is honest."""

    def __init__(self, db: eosdb.Database) -> None:
        super().__init__(db.broker)
        self.plan: list[str | ApiError] = []
        self.lost: list[Produce] = []
        """The requests that were not carried out, for those that arrive late."""
        self.asked: list[list[tuple[int, int]]] = []
        """The epoch and first sequence of each batch of each Produce."""

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        (request,) = requests
        if not isinstance(request, Produce):
            return super().ask(requests, sync=sync, fate=fate)
        batches = request.batches
        self.asked.append([(b.producer_epoch, b.base_sequence) for b in batches.values()])
        planned = self.plan.pop(0) if self.plan else None
        if isinstance(planned, ApiError):
            return [{tp: ProduceResult(error=planned) for tp in batches}]
        if planned == LOST:
            self.lost.append(request)
            return [NetworkExceptionError("lost")]
        answers = super().ask(requests, sync=sync, fate=fate)
        return [NetworkExceptionError("lost")] if planned == ANSWER_LOST else answers

    def arrive_late(self) -> None:
        for request in self.lost:
            super().ask((request,))


class Scene:
    """One producer with a batch for each record; the partition knows it."""

    def __init__(self, db: eosdb.Database, clock: ManualClock, **config: Any) -> None:
        self.db, self.clock = db, clock
        db.admin.create_topic("t", partitions=2)
        self.network = Planned(db)
        settings = {"batch_size": 1, "retry_backoff_ms": 10, "request_timeout_ms": 1_000, **config}
        self.producer = db.producer(transport=self.network, **settings)
        self.futures = [self.producer.send("t", "0", partition=0)]
        self.network.asked.clear()

    def send(self, *values: str) -> None:
        self.futures += [self.producer.send("t", value, partition=0) for value in values]

    def run(self, ms: int = 0) -> None:
        self.clock.advance(ms)
        self.producer._sender.run_once(self.clock.monotonic_ms())

    def finish(self) -> list[bytes | None]:
        self.producer.flush()
        return committed_values(self.db, TP)

    def told(self) -> list[tuple[int, int]]:
        """The epoch and sequence of each stored record."""
        return [(r.producer_epoch, r.sequence) for r in self.db.broker.fetch(TP, 0).records]


@pytest.fixture
def scene(db: eosdb.Database, clock: ManualClock) -> Scene:
    return Scene(db, clock)


@pytest.mark.parametrize("loss", [LOST, ANSWER_LOST])
def test_a_lost_batch_is_asked_for_again_with_its_sequence_before_those_behind_it(
    scene: Scene, loss: str
) -> None:
    scene.network.plan = [loss]
    with scene.producer.gathering():
        scene.send("1", "2", "3")
        scene.producer._driver.flush_until(lambda: bool(scene.network.asked), 1, EosdbError)
        scene.run(9)
        assert scene.network.asked == [[(0, 1)]], "retry_backoff_ms"
    assert scene.network.asked == [[(0, 1)], [(0, 1)], [(0, 2)], [(0, 3)]]
    assert scene.finish() == [b"0", b"1", b"2", b"3"]
    scene.network.arrive_late()
    assert committed_values(scene.db, TP) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("loss", [LOST, ANSWER_LOST])
def test_an_expired_batch_costs_an_epoch_and_is_stored_at_most_once(
    db: eosdb.Database, clock: ManualClock, loss: str
) -> None:
    scene = Scene(db, clock, delivery_timeout_ms=1_000, request_timeout_ms=300)
    scene.network.plan = [loss] * 1_000
    scene.send("1")
    scene.run(500)
    scene.send("2")
    scene.network.plan = [loss]
    scene.run(400)
    scene.run(100)
    error = scene.futures[1].exception()
    assert isinstance(error, RequestTimedOutError)
    assert error.outcome == "unknown"
    expected = [b"0", b"2"] if loss == LOST else [b"0", b"1", b"2"]
    assert scene.finish() == expected
    assert scene.told()[-1] == (1, 0)
    scene.network.arrive_late()
    assert committed_values(db, TP) == expected, "a late call of the old epoch is refused"


def test_a_gap_fails_the_batch_and_those_behind_it_go_on_in_a_new_epoch(scene: Scene) -> None:
    scene.network.plan = [OutOfOrderSequenceNumberError("there is a gap")]
    scene.send("1", "2", "3")
    assert isinstance(scene.futures[1].exception(), OutOfOrderSequenceNumberError)
    assert scene.finish() == [b"0", b"2", b"3"]
    assert scene.told() == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "error", [UnknownProducerIdError("who?"), InvalidProducerEpochError("old")]
)
def test_a_producer_that_is_not_known_takes_another_epoch_and_loses_nothing(
    scene: Scene, error: ApiError
) -> None:
    scene.network.plan = [error]
    scene.send("1", "2")
    assert scene.finish() == [b"0", b"1", b"2"]
    assert scene.told() == [(0, 0), (1, 0), (1, 1)]


def test_a_refused_batch_leaves_the_others_alone(scene: Scene) -> None:
    scene.network.plan = [TopicAuthorizationFailedError("not you")]
    scene.send("1", "2", "3")
    assert isinstance(scene.futures[1].exception(), TopicAuthorizationFailedError)
    assert scene.finish() == [b"0", b"2", b"3"]


def test_partitions_of_different_epochs_that_are_refused_at_once_lose_nothing_behind(
    scene: Scene,
) -> None:
    """Sequences that begin anew in an epoch that a partition has seen would be taken for repeats."""

    def send(value: str, *partitions: int) -> None:
        with scene.producer.gathering():
            for partition in partitions:
                scene.producer.send("t", value, partition=partition)

    no = TopicAuthorizationFailedError("no")
    send("0", 1)
    scene.network.plan = [no]
    send("refused", 0)
    send("1", 0)
    scene.network.plan = [no]
    send("refused", 0, 1)
    send("2", 0, 1)
    assert scene.finish() == [b"0", b"1", b"2"]
    assert committed_values(scene.db, OTHER) == [b"0", b"2"]


def test_a_retry_limit_is_kept_without_idempotence(db: eosdb.Database, clock: ManualClock) -> None:
    scene = Scene(db, clock, enable_idempotence=False, retries=2)
    scene.network.plan = [NotEnoughReplicasError("not now")] * 9
    scene.send("1")
    assert isinstance(scene.futures[1].exception(), NotEnoughReplicasError)
    assert len(scene.network.asked) == 3


def test_with_acks_0_a_lost_answer_is_not_missed(db: eosdb.Database, clock: ManualClock) -> None:
    scene = Scene(db, clock, enable_idempotence=False, acks=0)
    scene.network.plan = [LOST]
    scene.send("1")
    assert scene.futures[1].result().offset == -1
    assert len(scene.network.asked) == 1


def test_a_batch_that_nobody_carried_out_gives_its_sequences_back(db: eosdb.Database) -> None:
    """Several batches of a partition go in one call; those behind one that is too large are refused."""
    db.admin.create_topic("t", config={"max.message.bytes": "25"})
    with db.producer(batch_size=25, linger_ms=60_000) as producer, producer._lock:
        producer.send("t", b"known").result()
        values = [b"1" * 12, b"2" * 12, b"3" * 24, b"4" * 24]
        db.admin.alter_topic_config("t", {"max.message.bytes": "20"})
        futures = [producer.send("t", value) for value in values[:2]]
        db.admin.alter_topic_config("t", {"max.message.bytes": "40"})
        futures += [producer.send("t", value) for value in values[2:]]
        producer.flush()
    assert [future.exception() for future in futures] == [None] * 4
    assert committed_values(db, TP) == [b"known", *values]
