"""Transactions over the wire, under both transaction versions, and the error names of old clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

import eosdb
from eosdb import TopicPartition
from tests.requests import state
from tests.wire.peer import Peer, batch, fetch, fetched, produce, produced


@dataclass
class Txn:
    """A producer's view of its transactional id."""

    peer: Peer
    name: str = "a"
    producer: tuple[int, int] = (-1, -1)

    def init(self, version: int = 5, **fields: Any) -> int:
        answer = self.peer.ask(
            InitProducerIdRequest(
                transactional_id=self.name,
                **{"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
                | fields,
            ),
            version,
        )
        if answer.error_code == 0:
            self.producer = (answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def add(self, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        answer = self.peer.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                        name=topic, partitions=list(partitions)
                    )
                ],
            ),
            version,
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [p.partition_error_code for p in found.results_by_partition]

    def add_offsets(self, version: int) -> int:
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id="g",
        )
        return int(self.peer.ask(asked, version).error_code)

    def send(self, value: bytes, version: int, sequence: int = 0) -> int:
        data = batch(value, producer=self.producer, sequence=sequence, transactional=True)
        asked = produce({("t", 0): data}, transactional_id=self.name)
        ((code, _),) = produced(self.peer.ask(asked, version))
        return code

    def end(self, version: int, *, commit: bool = True) -> int:
        answer = self.peer.ask(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer[0],
                producer_epoch=self.producer[1],
                committed=commit,
            ),
            version,
        )
        if version >= 5 and answer.error_code == 0:
            self.producer = (answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


@pytest.fixture
def txn(peer: Peer) -> Txn:
    return Txn(peer)


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_of_version_1_keeps_its_epoch(
    txn: Txn, db: eosdb.Database, version: int
) -> None:
    assert txn.init(min(version, 4)) == 0
    for sequence in range(2):
        assert txn.add(0, 1, version=min(version, 3)) == [0, 0]
        assert txn.send(b"v", 9, sequence) == 0
        assert txn.end(version) == 0
    assert txn.producer[1] == 0
    assert state(db) == "CompleteCommit"
    assert [value for _, value in fetched(txn.peer.ask(fetch(0), 12))] == [b"v", b"v"]


def test_a_transaction_of_version_2_begins_by_itself_and_ends_with_the_next_epoch(
    txn: Txn,
) -> None:
    assert txn.init() == 0
    who, epoch = txn.producer
    for number in range(1, 4):
        assert txn.send(b"%d" % number, 12) == 0
        assert txn.end(5, commit=number != 2) == 0
        assert txn.producer == (who, epoch + number)
    assert [value for _, value in fetched(txn.peer.ask(fetch(0), 12))] == [b"1", b"3"]


def test_a_batch_of_version_1_needs_its_partition_in_the_transaction(txn: Txn) -> None:
    txn.init()
    assert txn.send(b"v", 9) == 48
    assert txn.send(b"v", 11) == 120


def test_an_identity_without_transactions_is_given_to_everybody(peer: Peer) -> None:
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    first, second = (peer.ask(asked, version) for version in (0, 5))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id > first.producer_id


def test_one_unknown_partition_leaves_the_others_out(txn: Txn, db: eosdb.Database) -> None:
    txn.init()
    assert txn.add(0, 7, 1) == [55, 3, 55]
    assert txn.add(0, topic="gone") == [3]
    assert state(db) == "Empty"


def test_who_is_fenced_is_told_so_as_his_version_knows_it(txn: Txn, db: eosdb.Database) -> None:
    txn.init()
    old = Txn(txn.peer, producer=txn.producer)
    txn.init()
    assert [old.end(version) for version in range(6)] == [47, 47, 90, 90, 90, 90]
    assert [old.add(0, version=version) for version in range(4)] == [[47], [47], [90], [90]]
    assert [old.add_offsets(version) for version in range(5)] == [47, 47, 90, 90, 90]
    fields = {"producer_id": old.producer[0], "producer_epoch": old.producer[1]}
    assert old.init(3, **fields) == 47
    assert old.init(4, **fields) == 90
    assert old.send(b"v", 9) == 47


def test_the_next_of_an_id_ends_what_the_last_left_open(txn: Txn, db: eosdb.Database) -> None:
    txn.init()
    txn.send(b"left", 12)
    again = Txn(txn.peer)
    codes = [again.init()]
    while codes[-1] == 51:
        codes.append(again.init())
    assert codes == [51, 0]
    assert fetched(txn.peer.ask(fetch(0), 12)) == []


def test_wrong_requests_have_their_errors(txn: Txn) -> None:
    assert txn.end(4) == 49
    assert txn.init(transaction_timeout_ms=2**31 - 1) == 50
    assert txn.init() == 0
    assert txn.end(4) == 48
    txn.name = ""
    assert txn.init() == 42


def test_a_transaction_over_both_roads_is_one(txn: Txn, db: eosdb.Database) -> None:
    txn.init()
    assert txn.send(b"by the wire", 12) == 0
    record = eosdb.RecordBatch([eosdb.Record(value=b"by the library")], *txn.producer, 1, True)
    db.broker.append(TopicPartition("t", 0), record, transactional_id="a")
    assert txn.end(5) == 0
    assert [value for _, value in fetched(txn.peer.ask(fetch(0), 12))] == [
        b"by the wire",
        b"by the library",
    ]
    assert db.verify().ok
