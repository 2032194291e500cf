"""A `send` that fails at once, and what becomes of the transaction it was part of.

Goal: whoever swallows the exception does not commit a transaction that lacks the record (Kafka: doSend,
maybeTransitionToErrorState), and what Kafka's producer does not count against the transaction does not
count here. Method: one transaction with a good record, then the bad one, then the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition, errors
from eosdb.client.transport import DirectTransport
from eosdb.errors import EosdbError
from eosdb.model.requests import Request
from eosdb.model.threads import Fate
from tests.readers import committed_values

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
LONE = "a\ud800"
Send = Callable[[eosdb.Producer], object]


class Refusing(DirectTransport):
    """Answers every request of one kind with an error while there is one; nobody may look up `denied`."""

    def __init__(self, db: eosdb.Database) -> None:
        super().__init__(db.broker)
        self.answers: dict[str, EosdbError] = {}

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        (request,) = requests
        if request.name in self.answers:
            return [self.answers[request.name]]
        (answer,) = super().ask(requests, sync=sync, fate=fate)
        if isinstance(answer, EosdbError) and "'denied'" in str(answer):
            return [errors.TopicAuthorizationFailedError("denied")]
        return [answer]


def to_json(value: object) -> bytes:
    raise ArithmeticError("the serializer's own")


def producer_of(
    db: eosdb.Database, transport: Refusing, transactional_id: str | None
) -> eosdb.Producer:
    made = db.producer(
        transactional_id=transactional_id,
        transport=transport,
        max_block_ms=500,
        max_request_size=700_000,
        partitioner=lambda key, count: 0 if key == b"k" else count,
        key_serializer=lambda key: to_json(key) if key == 1.5 else str(key).encode(),
    )
    if transactional_id is not None:
        made.init_transactions()
    return made


@pytest.fixture
def network(db: eosdb.Database) -> Refusing:
    db.admin.create_topic("t")
    return Refusing(db)


REFUSED: list[object] = [
    pytest.param(lambda p: p.send("t", b"v" * 700_001), errors.MessageTooLargeError, id="too large"),
    pytest.param(lambda p: p.send("nope", b"v"), errors.UnknownTopicOrPartitionError, id="no topic"),
    pytest.param(
        lambda p: p.send("t", b"v", partition=1), errors.UnknownTopicOrPartitionError, id="partition 1"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", partition=-1), errors.UnknownTopicOrPartitionError, id="-1"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", partition="0"), errors.UnknownTopicOrPartitionError, id="text"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", partition=True), errors.UnknownTopicOrPartitionError, id="True"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", timestamp=-1), errors.InvalidTimestampError, id="before 1970"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", timestamp=1.5, deliver_at=1), errors.InvalidTimestampError, id="1.5"
    ),
    pytest.param(
        lambda p: p.send("denied", b"v"), errors.TopicAuthorizationFailedError, id="denied topic"
    ),
    pytest.param(lambda p: p.send("t", LONE), errors.InvalidRecordError, id="value without UTF-8"),
    pytest.param(
        lambda p: p.send("t", b"v", headers=[(LONE, b"")]), errors.InvalidRecordError, id="header"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", headers=[(1, b"")]), errors.InvalidRecordError, id="number"
    ),
    pytest.param(
        lambda p: p.send("t", b"v", headers=[("h", 5)]), errors.InvalidRecordError, id="value"
    ),
]  # fmt: skip
NOT_COUNTED: list[object] = [
    pytest.param(lambda p: p.send("t", 5), TypeError, id="what needs a serializer"),
    pytest.param(lambda p: p.send("t", b"v", key=1.5), ArithmeticError, id="a serializer's error"),
    pytest.param(lambda p: p.send("t", b"v", key="x"), errors.ConfigError, id="a partitioner's choice"),
    pytest.param(
        lambda p: p.begin_transaction(), errors.IllegalStateError, id="a call in the wrong state"
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("send", "error"), REFUSED)
def test_a_transaction_that_lacks_a_record_is_not_committed(
    db: eosdb.Database, network: Refusing, send: Send, error: type[EosdbError]
) -> None:
    producer = producer_of(db, network, "a")
    producer.begin_transaction()
    producer.send("t", b"good")
    with pytest.raises(error) as refused:
        send(producer)
    assert producer.state == "ABORTABLE_ERROR"
    for call in (producer.commit_transaction, lambda: producer.send("t", b"more")):
        with pytest.raises(error) as again:
            call()
        assert again.value is refused.value
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"next")
    assert committed_values(db, TP) == [b"next"]


def test_a_block_that_swallows_the_refusal_is_aborted(
    db: eosdb.Database, network: Refusing
) -> None:
    producer = producer_of(db, network, "a")
    with pytest.raises(errors.MessageTooLargeError), producer.transaction():
        producer.send("t", b"good")
        with pytest.raises(errors.MessageTooLargeError):
            producer.send("t", b"v" * 700_001)
    assert producer.state == "READY"
    assert committed_values(db, TP) == []


@pytest.mark.parametrize(("send", "error"), NOT_COUNTED)
def test_what_cannot_be_serialized_or_called_leaves_the_transaction_as_it_was(
    db: eosdb.Database, network: Refusing, send: Send, error: type[Exception]
) -> None:
    """Kafka: SerializationException and IllegalArgumentException are no ApiException."""
    producer = producer_of(db, network, "a")
    producer.begin_transaction()
    producer.send("t", b"good")
    with pytest.raises(error):
        send(producer)
    producer.commit_transaction()
    assert committed_values(db, TP) == [b"good"]


@pytest.mark.slow
@pytest.mark.parametrize(("send", "error"), [*REFUSED, *NOT_COUNTED])
def test_without_a_transaction_the_producer_goes_on(
    db: eosdb.Database, network: Refusing, send: Send, error: type[Exception]
) -> None:
    producer = producer_of(db, network, None)
    with pytest.raises(error):
        send(producer)
    producer.send("t", b"good").result()
    assert committed_values(db, TP) == [b"good"]


def test_a_buffer_that_stays_full_costs_the_transaction_and_stores_nothing_later(
    db_path: Path, clock: ManualClock
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t")
        network = Refusing(db)
        producer = producer_of(db, network, "a")
        producer.begin_transaction()
        network.answers = {"produce": errors.NotEnoughReplicasError("not now")}
        for _ in range(2):
            producer.send("t", b"v" * 600_000)
        with pytest.raises(errors.RequestTimedOutError, match="the buffer is full"):
            producer.send("t", b"one too many")
        network.answers = {}
        with pytest.raises(errors.RequestTimedOutError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"next")
        assert committed_values(db, TP) == [b"next"]


def test_a_record_that_found_no_room_is_not_stored_when_there_is_some(
    db: eosdb.Database, network: Refusing
) -> None:
    """So `send` may be called again, and stores it once."""
    producer = producer_of(db, network, None)
    network.answers = {"produce": errors.NotEnoughReplicasError("not now")}
    for name in (b"1", b"2"):
        producer.send("t", name * 600_000)
    with pytest.raises(errors.RequestTimedOutError):
        producer.send("t", b"3")
    network.answers = {}
    producer.send("t", b"3")
    producer.flush()
    assert [(value or b"")[:1] for value in committed_values(db, TP)] == [b"1", b"2", b"3"]
