"""Where a batch comes in the queue, and which sequence it has on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.broker.broker import Broker
from eosdb.client.producer.accumulator import Drive, ProducerBatch
from eosdb.client.producer.state import Sequences
from eosdb.errors import DatabaseLockedError
from eosdb.model.values import ProducerIdAndEpoch
from tests.readers import committed_values

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
ME, NEXT = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)
TOP = 2**31 - 1


class _NoDrive:
    def until_answered(self, batch: ProducerBatch, timeout: float | None) -> None: ...

    def watch(self, future: object) -> None: ...


def batch_of(count: int = 1) -> ProducerBatch:
    drive: Drive = _NoDrive()
    batch = ProducerBatch(TP, 0, drive)
    for _ in range(count):
        batch.append(None, b"v", (), None, 1)
    return batch


@pytest.mark.parametrize(
    ("serial", "sequence"), [(0, 0), (TOP, TOP), (TOP + 1, 0), (TOP + 2, 1), (2 * TOP + 2, 0)]
)
def test_after_the_last_sequence_comes_0(serial: int, sequence: int) -> None:
    batch = batch_of()
    batch.identity, batch.serial = ME, serial
    assert batch.request(is_transactional=False).base_sequence == sequence


def test_the_halves_of_a_batch_have_its_attempts_and_no_sequence() -> None:
    batch = batch_of(5)
    batch.identity, batch.serial = ME, 10
    batch.attempts = 3
    halves = batch.split()
    assert [(half.identity, len(half.records), half.attempts) for half in halves] == [
        (None, 2, 3), (None, 3, 3),
    ]  # fmt: skip


def test_batches_that_were_taken_back_give_their_sequences_back() -> None:
    sequences, first, second, third = Sequences(), batch_of(2), batch_of(3), batch_of()
    for batch in (first, second, third):
        sequences.assign(batch, ME)
    sequences.take_back(third)
    sequences.take_back(second)
    assert (second.identity, second.serial) == (None, -1)
    sequences.assign(third, ME)
    assert third.serial == 2


def test_a_batch_of_an_earlier_identity_gives_nothing_back() -> None:
    sequences, old, new = Sequences(), batch_of(5), batch_of(2)
    sequences.assign(old, ME)
    sequences.assign(new, NEXT)
    assert new.serial == 0
    sequences.take_back(old)
    assert (sequences.identity, sequences.next_serial) == (NEXT, 2)


def test_batches_that_a_lock_has_kept_from_being_sent_stay_in_order(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were to go with the commit, all in one turn of the writer."""
    turn, refusals = Broker.turn, [DatabaseLockedError("locked")]

    def refusing(*given: Any, **settings: Any) -> object:
        if refusals:
            raise refusals.pop()
        return turn(*given, **settings)

    values = [b"%d" % i for i in range(6)]
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="x", linger_ms=60_000)
        producer._accumulator.most_bytes = 1  # A batch for each record.
        producer._driver.stop()  # Its thread might send some of them before the commit does.
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("t", value, partition=0)
        assert len(producer._accumulator._waiting[TP]) > 2
        monkeypatch.setattr(Broker, "turn", refusing)
        with pytest.raises(DatabaseLockedError):
            producer.commit_transaction()
        producer.commit_transaction()
        assert committed_values(db, TP) == values
