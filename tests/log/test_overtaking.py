"""A batch behind one that was refused, as its partition is not in the transaction, does not begin the log.

Each history was asked of Kafka 4.4.0, over the wire with Produce 9 and AddPartitionsToTxn 2.
"""

from __future__ import annotations

import pytest

import eosdb
from eosdb import Record, RecordBatch
from eosdb.errors import ApiError
from eosdb.log.attempts import Attempts, Tried, after_trying, overtakes
from tests.requests import TP

pytestmark = pytest.mark.both_roads

LAST = 2**31 - 1


class Producer:
    """One of transaction version 1, which says what it does in letters."""

    def __init__(self, db: eosdb.Database) -> None:
        db.admin.create_topic("t")
        self.db = db
        self.who = db.broker.init_producer_id("x")

    def send(self, sequence: int, *, epoch: int = 0, transactional: bool = True) -> int:
        """The code of the answer."""
        batch = RecordBatch(
            [Record(value=b"%d" % sequence)], self.who.producer_id,
            self.who.producer_epoch + epoch, sequence, transactional,
        )  # fmt: skip
        try:
            self.db.broker.append(
                TP, batch, transactional_id="x" if transactional else None, transaction_version=1
            )
        except ApiError as error:
            return error.code
        return 0

    def add(self) -> None:
        self.db.broker.add_partitions_to_txn("x", *self.who, [TP])

    def end(self, *, committed: bool) -> None:
        self.db.broker.end_txn("x", *self.who, committed, transaction_version=1)


@pytest.fixture
def producer(db: eosdb.Database) -> Producer:
    return Producer(db)


@pytest.mark.parametrize(
    ("refused", "then"),
    [
        ([0], [(1, 45), (0, 0), (1, 0)]),
        ([1], [(1, 0), (2, 0)]),
        ([1], [(2, 45), (1, 0), (2, 0)]),
        ([1, 0], [(1, 45), (0, 0), (1, 0)]),
        ([0, 5], [(5, 45), (0, 0)]),
        ([0], [(1, 45), (1, 45), (2, 45), (0, 0), (2, 45), (1, 0)]),
        ([], [(7, 0), (8, 0)]),
    ],
    ids=str,
)
def test_nothing_begins_above_what_was_refused(
    producer: Producer, refused: list[int], then: list[tuple[int, int]]
) -> None:
    assert [producer.send(sequence) for sequence in refused] == [48] * len(refused)
    producer.add()
    assert [(sequence, producer.send(sequence)) for sequence, _ in then] == then


def test_a_refusal_for_another_reason_counts_too(producer: Producer) -> None:
    assert producer.send(0, epoch=1) == 47
    producer.add()
    assert [producer.send(1), producer.send(0), producer.send(1)] == [45, 0, 0]


def test_it_holds_for_a_batch_outside_of_the_transaction(producer: Producer) -> None:
    assert producer.send(4) == 48
    assert producer.send(9, transactional=False) == 45


def test_a_new_epoch_begins_anew(producer: Producer) -> None:
    assert producer.send(0) == 48
    producer.who = producer.db.broker.init_producer_id("x")
    producer.add()
    assert [producer.send(3), producer.send(0)] == [0, 45]


def test_a_producer_that_is_known_is_judged_by_what_is_known(producer: Producer) -> None:
    producer.add()
    assert [producer.send(0), producer.send(1)] == [0, 0]
    producer.end(committed=True)
    assert producer.send(2) == 48
    producer.add()
    assert [producer.send(3), producer.send(2), producer.send(3)] == [45, 0, 0]


def test_what_was_refused_is_forgotten_once_something_is_stored(producer: Producer) -> None:
    """Else a producer that has expired could not come back."""
    assert producer.send(0) == 48
    producer.add()
    assert producer.send(0) == 0
    assert not producer.db._core.attempts._tried


def test_a_version_2_transaction_does_not_begin_in_mid_sequence(db: eosdb.Database) -> None:
    producer = Producer(db)

    def send(sequence: int, epoch: int = 0) -> int:
        one = RecordBatch(
            [Record(value=b"a")], producer.who[0], producer.who[1] + epoch, sequence, True
        )
        try:
            db.broker.append(TP, one, transactional_id="x", transaction_version=2)
        except ApiError as error:
            return error.code
        return 0

    assert [send(0, epoch=1), send(1), send(0), send(1)] == [47, 45, 0, 0]


def test_an_older_epoch_changes_nothing_and_sequences_wrap() -> None:
    tried = after_trying(None, 5, 7)
    assert after_trying(tried, 4, 0) == tried
    assert after_trying(tried, 5, 9) == tried
    assert after_trying(tried, 6, 9) == Tried(6, 9)
    assert overtakes(Tried(0, LAST), 0)
    assert after_trying(Tried(0, 0), 0, LAST) == Tried(0, LAST)
    assert not overtakes(None, 3)


def test_what_is_remembered_is_bounded() -> None:
    attempts = Attempts()
    for producer_id in range(10_001):
        attempts.note(1, producer_id, 0, 0)
    assert attempts.lowest(1, 0, 1) is None, "the oldest is forgotten"
    assert attempts.lowest(1, 1, 1) == 0
