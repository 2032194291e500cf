"""The four failures in the middle of a transaction that the articles name, and how each is recovered.

(Where `begin` fails, it is the request behind it: under Kafka's protocol beginning sends nothing.)
"""

from __future__ import annotations

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.errors import NetworkExceptionError, RequestTimedOutError
from eosdb.model.failpoints import Failpoint, watched
from tests.client.producer.answers import Answers, transactional
from tests.readers import committed_values

TP = TopicPartition("t", 0)


LOST = NetworkExceptionError("lost")


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


def test_an_error_in_the_beginning_is_repeated(db: eosdb.Database) -> None:
    network = Answers(db, *[("init_producer_id", LOST)] * 2)
    network.reaches_the_broker = True
    producer = transactional(db, transport=network)
    with producer.transaction():
        producer.send("t", "v")
    assert network.planned == []
    assert committed_values(db, TP) == [b"v"]


def test_an_init_that_got_no_answer_in_time_is_called_again(db: eosdb.Database) -> None:
    network = Answers(db, *[("init_producer_id", LOST)] * 30)
    producer = db.producer(transactional_id="a", transport=network, max_block_ms=1_000)
    with pytest.raises(NetworkExceptionError):
        producer.init_transactions()
    network.planned = []
    producer.init_transactions()
    assert producer.state == "READY"


def test_an_error_in_send_aborts_the_transaction_and_the_producer_goes_on(
    db: eosdb.Database,
) -> None:
    network = Answers(db, *[("produce", LOST)] * 10_000)
    producer = transactional(
        db,
        transport=network,
        delivery_timeout_ms=2_000,
        request_timeout_ms=500,
    )
    producer.begin_transaction()
    future = producer.send("t", "lost")
    with pytest.raises(RequestTimedOutError):
        producer.commit_transaction()
    assert producer.state == "ABORTABLE_ERROR"
    assert isinstance(future.exception(), RequestTimedOutError)
    network.planned = []
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", "again")
    assert committed_values(db, TP) == [b"again"]


@pytest.mark.parametrize("arrives", [True, False])
def test_an_error_in_commit_is_repeated(db: eosdb.Database, arrives: bool) -> None:
    network = Answers(db, *[("end_txn", LOST)] * 3)
    network.reaches_the_broker = arrives
    producer = transactional(db, transport=network)
    with producer.transaction() as token:
        producer.send("t", "v")
    assert db.outcome(token) == "committed"
    assert committed_values(db, TP) == [b"v"]
    with producer.transaction():
        producer.send("t", "w")
    assert committed_values(db, TP) == [b"v", b"w"]


class CoordinatorFailure(BaseException):
    """The coordinator's process is gone."""


@pytest.mark.parametrize("committed", [True, False])
def test_a_decided_transaction_is_completed_by_the_next_coordinator(
    db: eosdb.Database, db_path: str, clock: eosdb.ManualClock, committed: bool
) -> None:
    producer = transactional(db)
    token = producer.begin_transaction()
    producer.send("t", "v")
    producer.flush()

    def fail(point: Failpoint) -> None:
        if point is Failpoint.END_TXN_DECIDED:
            raise CoordinatorFailure

    with watched(fail), pytest.raises(CoordinatorFailure):
        producer.commit_transaction() if committed else producer.abort_transaction()
    assert db.outcome(token) == ("committed" if committed else "aborted"), "decided is decided"
    db.abandon()
    with eosdb.connect(db_path, clock=clock) as other:
        assert committed_values(other, TP) == ([b"v"] if committed else [])
        assert other.outcome(token) == ("committed" if committed else "aborted")


def test_an_open_transaction_outlives_the_coordinator(
    db: eosdb.Database, db_path: str, clock: eosdb.ManualClock
) -> None:
    """The producer goes on with the new coordinator as if nothing had happened."""
    other = eosdb.connect(db_path, clock=clock)
    producer = transactional(other, transport=db.broker)
    token = producer.begin_transaction()
    producer.send("t", "before")
    producer.flush()
    identity = db.broker.describe_transactions(["a"])["a"]
    assert (identity.producer_id, identity.producer_epoch) == (
        token.producer_id,
        token.producer_epoch,
    )
    db.abandon()
    batch = eosdb.RecordBatch(
        [eosdb.Record(value=b"after")], token.producer_id, token.producer_epoch, 1, True
    )
    other.broker.append(TP, batch, transactional_id="a")
    other.broker.end_txn("a", token.producer_id, token.producer_epoch, True)
    assert committed_values(other, TP) == [b"before", b"after"]
    other.close()
