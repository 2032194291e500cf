"""`db.outcome`: what became of a transaction, whoever asks and whenever."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, TransactionToken


@pytest.fixture
def producer(db: eosdb.Database) -> eosdb.Producer:
    db.admin.create_topic("t")
    made = db.producer(transactional_id="a")
    made.init_transactions()
    return made


def test_each_transaction_has_a_token_of_its_own(
    db: eosdb.Database, producer: eosdb.Producer
) -> None:
    tokens = []
    for number in range(4):
        tokens.append(producer.begin_transaction())
        producer.send("t", str(number))
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert len(set(tokens)) == 4
    assert [db.outcome(token) for token in tokens] == ["committed", "aborted"] * 2


def test_the_life_of_one_transaction(db: eosdb.Database, producer: eosdb.Producer) -> None:
    token = producer.begin_transaction()
    assert db.outcome(token) == "never started", "beginning sends nothing"
    producer.send("t", "v")
    producer.flush()
    assert db.outcome(token) == "open"
    producer.commit_transaction()
    assert db.outcome(token) == "committed"


def test_a_fenced_transaction_was_aborted(db: eosdb.Database, producer: eosdb.Producer) -> None:
    token = producer.begin_transaction()
    producer.send("t", "v")
    producer.flush()
    db.producer(transactional_id="a").init_transactions()
    assert db.outcome(token) == "aborted"


def test_an_empty_transaction_never_started(db: eosdb.Database, producer: eosdb.Producer) -> None:
    """And since nobody but its producer ever heard of it, the next one takes over its token."""
    token = producer.begin_transaction()
    producer.commit_transaction()
    assert db.outcome(token) == "never started"
    assert producer.begin_transaction() == token


@pytest.mark.parametrize(
    "token",
    [TransactionToken("unknown", 0, 0), TransactionToken("a", 999, 0), TransactionToken("a", 0, 7)],
)
def test_what_nobody_began_never_started(
    db: eosdb.Database, producer: eosdb.Producer, token: TransactionToken
) -> None:
    with producer.transaction():
        producer.send("t", "v")
    assert db.outcome(token) == "never started"


def test_it_outlives_the_transactional_id_and_the_process(
    db: eosdb.Database, db_path: Path, clock: ManualClock, producer: eosdb.Producer
) -> None:
    with producer.transaction() as token:
        producer.send("t", "v")
    clock.advance(8 * 86_400_000)
    assert db.housekeeping()
    with pytest.raises(eosdb.TransactionalIdNotFoundError):
        db.broker.describe_transactions(["a"])
    db.close()
    with eosdb.connect(db_path, read_only=True) as other:
        assert other.outcome(token) == "committed"


def test_what_is_no_token_is_refused(db: eosdb.Database) -> None:
    with pytest.raises(eosdb.InvalidRequestError, match="begin_transaction"):
        db.outcome("a")  # type: ignore[arg-type]


def test_under_version_1_a_token_names_the_newest_transaction(
    db_path: Path, clock: ManualClock
) -> None:
    config = eosdb.BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, clock=clock, config=config) as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        with producer.transaction() as first:
            producer.send("t", "v")
        second = producer.begin_transaction()
        assert first == second
        producer.send("t", "w")
        producer.flush()
        assert db.outcome(first) == "open"
