"""Where a batch comes in the queue, and which sequence it has on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, TopicPartition
from eosdb.broker.broker import Broker
from eosdb.client.producer.accumulator import Drive, ProducerBatch
from eosdb.client.producer.state import PartitionProgress
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


def test_the_halves_of_a_batch_have_its_sequences_and_attempts() -> None:
    batch = batch_of(5)
    batch.identity, batch.serial = ME, 10
    batch.attempts = 3
    halves = batch.split()
    assert [(half.serial, len(half.records), half.attempts) for half in halves] == [
        (10, 2, 3), (12, 3, 3),
    ]  # fmt: skip


def test_a_batch_that_was_taken_back_gives_its_sequences_back() -> None:
    progress, first, second, third = PartitionProgress(), batch_of(2), batch_of(3), batch_of()
    progress.assign(first, ME)
    progress.assign(second, ME)
    progress.take_back(second)
    assert (second.identity, second.serial) == (None, -1)
    progress.assign(third, ME)
    assert (third.serial, progress.unacknowledged) == (2, [first, third])


def test_a_batch_is_restored_in_its_place() -> None:
    progress, batches = PartitionProgress(), [batch_of() for _ in range(3)]
    for batch in batches:
        progress.assign(batch, ME)
    progress.drop(batches[0])
    progress.drop(batches[2])
    progress.restore(batches[2])
    progress.restore(batches[0])
    assert progress.unacknowledged == batches


def test_an_answer_under_an_earlier_identity_acknowledges_nothing() -> None:
    progress, old, new = PartitionProgress(), batch_of(5), batch_of()
    progress.assign(old, ME)
    progress.assign(new, NEXT)
    assert progress.acknowledged == 0
    progress.acknowledge(old, 0)
    assert (progress.acknowledged, progress.unacknowledged) == (0, [new])
    assert not progress.admits_new(NEXT, 5, 0)


def test_the_first_batch_is_alone_and_then_there_are_so_many_in_flight() -> None:
    """A partition that does not know the producer would take the second first."""
    progress = PartitionProgress()
    first = batch_of()
    progress.assign(first, ME)
    assert not progress.admits_new(ME, 5, 0)
    assert progress.admits_new(ME, 5, 0, in_order=True)
    progress.acknowledge(first, 0)
    for in_flight in range(6):
        assert progress.admits_new(ME, 5, 0) == (in_flight < 5)
        if in_flight < 5:
            progress.assign(batch_of(), ME)


def test_a_partition_may_have_forgotten_the_producer_after_a_while() -> None:
    progress = PartitionProgress()
    first = batch_of()
    progress.assign(first, ME)
    progress.acknowledge(first, 0)
    progress.assign(batch_of(), ME)
    assert progress.admits_new(ME, 5, 9_999)
    assert not progress.admits_new(ME, 5, 10_000)


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
    config = BrokerConfig(transaction_version=2)
    with eosdb.connect(db_path, config=config, durability="off") as db:
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
