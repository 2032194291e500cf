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


def test_old_transactions_are_found_among_many(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the newest transitions by bisection."""
    from eosdb.coordinator import outcome

    db.admin.create_topic("t")
    tokens: list[tuple[TransactionToken, str]] = []
    for life in range(4):
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        for number in range(12):
            token = producer.begin_transaction()
            if number % 5 == 4:
                producer.close()
                tokens.append((token, "never started"))
                break
            producer.send("t", f"{life}.{number}")
            producer.flush()
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            tokens.append((token, "committed" if number % 3 else "aborted"))
    for rows in (1, 2, 3, 300):
        monkeypatch.setattr(outcome, "_ROWS_AT_ONCE", rows)
        for token, expected in tokens:
            assert db.outcome(token) == expected, (rows, token)


def test_ids_that_did_not_rise_are_walked(
    db_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id expires, and the next producer id is a lower one, from another process's block."""
    from eosdb.coordinator import outcome

    monkeypatch.setattr(outcome, "_ROWS_AT_ONCE", 1)
    with (
        eosdb.connect(db_path, clock=clock) as low,
        eosdb.connect(db_path, clock=clock) as high,
    ):
        low.admin.create_topic("t")
        low.broker.init_producer_id()  # Takes the first block.
        tokens = []
        for db in (high, low, high):
            producer = db.producer(transactional_id="a")
            producer.init_transactions()
            with producer.transaction() as token:
                producer.send("t", "v")
            tokens.append(token)
            clock.advance(8 * 86_400_000)
            db.housekeeping()
        ids = [token.producer_id for token in tokens]
        assert ids[0] > ids[1] < ids[2], "they did not rise"
        assert [low.outcome(token) for token in tokens] == ["committed"] * 3
        unknown = TransactionToken("a", ids[1], 9)
        assert low.outcome(unknown) == "never started"


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
