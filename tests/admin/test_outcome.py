"""`db.outcome`: what became of a transaction, whoever asks and whenever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition, TransactionToken
from tests import classic
from tests.client.producer.answers import Answers, transactional


@pytest.fixture
def producer(db: eosdb.Database) -> eosdb.Producer:
    db.admin.create_topic("t")
    return transactional(db)


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
    """Nobody but its producer ever heard of it, and yet its token is its own."""
    tokens = []
    for end in (producer.commit_transaction, producer.abort_transaction):
        tokens.append(producer.begin_transaction())
        end()
    with producer.transaction() as last:
        producer.send("t", "v")
    assert len({*tokens, last}) == 3
    assert [db.outcome(token) for token in tokens] == ["never started"] * 2
    assert db.outcome(last) == "committed"


def send_nothing(producer: eosdb.Producer) -> None:
    """Nothing is given to the producer."""


def send_and_keep(producer: eosdb.Producer) -> None:
    """What is given stays in the producer."""
    producer.send("t", "lost")


def send_too_much(producer: eosdb.Producer) -> None:
    with pytest.raises(eosdb.MessageTooLargeError):
        producer.send("t", b"v" * 2_000_000)


def send_out(producer: eosdb.Producer) -> None:
    producer.send("t", "lost")
    producer.flush()


DOINGS = [send_nothing, send_and_keep, send_too_much, send_out]


@pytest.mark.slow
@pytest.mark.parametrize("doing", DOINGS)
@pytest.mark.parametrize("next_committed", [True, False], ids=["then a commit", "then an abort"])
def test_an_aborted_transaction_is_never_told_the_fate_of_the_next(
    db_path: Path,
    clock: ManualClock,
    next_committed: bool,
    doing: Callable[[eosdb.Producer], None],
) -> None:
    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t")
        producer = transactional(db)
        with producer.transaction():
            producer.send("t", "before")
        token = producer.begin_transaction()
        doing(producer)
        producer.abort_transaction()
        told = db.outcome(token)
        assert told == ("aborted" if doing in (send_and_keep, send_out) else "never started")
        following = producer.begin_transaction()
        assert following != token
        producer.send("t", "after")
        producer.flush()
        assert (db.outcome(token), db.outcome(following)) == (told, "open")
        if next_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        outcome = "committed" if next_committed else "aborted"
        assert (db.outcome(token), db.outcome(following)) == (told, outcome)
        assert db.verify().ok


def test_an_abort_of_what_was_never_sent_takes_the_epoch_away_as_in_kafka(
    db: eosdb.Database, producer: eosdb.Producer
) -> None:
    """Kafka 4.4.0: EndTxn(abort) in the state Empty answers the next epoch; its sequences begin at 0."""
    token = producer.begin_transaction()
    producer.send("t", "lost")
    producer.abort_transaction()
    with producer.transaction() as following:
        producer.send("t", "kept")
    assert following.producer_epoch == token.producer_epoch + 1
    (record, marker) = db.broker.fetch(TopicPartition("t", 0), 0).records
    assert (record.producer_epoch, record.sequence) == (following.producer_epoch, 0)
    assert (marker.producer_epoch, marker.control) == (following.producer_epoch + 1, "COMMIT")


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
    from eosdb.admin import outcome

    db.admin.create_topic("t")
    tokens: list[tuple[TransactionToken, str]] = []
    for life in range(4):
        producer = transactional(db)
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
    from eosdb.admin import outcome

    monkeypatch.setattr(outcome, "_ROWS_AT_ONCE", 1)
    config = eosdb.BrokerConfig(history_retention_ms=-1)
    with (
        eosdb.connect(db_path, clock=clock, config=config) as low,
        eosdb.connect(db_path, clock=clock, config=config) as high,
    ):
        low.admin.create_topic("t")
        low.broker.init_producer_id()  # Takes the first block.
        tokens = []
        for db in (high, low, high):
            producer = transactional(db)
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


def test_under_version_1_transactions_of_one_epoch_have_numbers(
    db_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 leaves the epoch as it is, as in Kafka; an empty one in between asks for another."""
    from eosdb.admin import outcome

    with eosdb.connect(db_path, clock=clock) as db:
        db.admin.create_topic("t", partitions=2)
        tokens: list[tuple[TransactionToken, str]] = []
        for _ in range(2):
            producer = classic.transactional(db, "a", version=1)
            for number in range(6):
                token = producer.begin_transaction()
                tokens.append((token, ("committed", "aborted", "never started")[number % 3]))
                for partition in (0, 1) if number % 3 < 2 else ():
                    producer.send("t", "v", partition=partition)
                    producer.flush()
                if number % 3:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        assert [(t.producer_epoch, t.number) for t, _ in tokens[:6]] == [
            (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
        ]  # fmt: skip
        last = producer.begin_transaction()
        producer.send("t", "v")
        producer.flush()
        tokens.append((last, "open"))
        for rows in (1, 2, 7, 300):
            monkeypatch.setattr(outcome, "_ROWS_AT_ONCE", rows)
            assert [db.outcome(token) for token, _ in tokens] == [told for _, told in tokens]


def test_a_begin_that_needs_another_epoch_and_gets_no_answer_may_be_called_again(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("t")
    network = Answers(db)
    producer = transactional(db, transport=network, max_block_ms=500)
    empty = producer.begin_transaction()
    producer.commit_transaction()
    for error, state in (
        (eosdb.NetworkExceptionError("lost"), "INITIALIZING"),
        (eosdb.DatabaseFullError("no room"), "UNINITIALIZED"),
    ):
        network.planned = [("init_producer_id", error)] * 1_000
        with pytest.raises(eosdb.EosdbError):
            producer.begin_transaction()
        assert producer.state == state
    network.planned = []
    token = producer.begin_transaction()
    assert token != empty
    producer.send("t", "v")
    producer.commit_transaction()
    assert (db.outcome(empty), db.outcome(token)) == ("never started", "committed")
