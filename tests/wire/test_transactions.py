"""Transactions over the wire, under both transaction versions, and the error names of old clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

import eosdb
from eosdb import TopicPartition
from tests.coordinator.transactions.requests import (
    FENCED,
    ORDERS,
    STALE,
    UNMAPPED,
    WAIT,
    WRONG_STATE,
    Served,
    opened,
)
from tests.coordinator.transactions.table import AT_REST_OR_OPEN, STORIES, Story, serve
from tests.requests import state
from tests.wire.peer import Peer, batch, fetch, fetched, produce, produced


@dataclass
class Txn:
    """A producer's view of its transactional id."""

    peer: Peer
    name: str = "a"
    producer: tuple[int, int] = (-1, -1)

    def _ask(self, kind: Any, version: int, **fields: Any) -> Any:
        pid, epoch = self.producer
        of_producer = {"transactional_id": self.name, "producer_id": pid, "producer_epoch": epoch}
        return self.peer.ask(kind(**of_producer | fields), version)

    def init(self, version: int = 5, **fields: Any) -> int:
        anew = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self._ask(InitProducerIdRequest, version, **anew | fields)
        if answer.error_code == 0:
            self.producer = (answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def add(self, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        pid, epoch = self.producer
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                    name=topic, partitions=list(partitions)
                )
            ],
        )
        (found,) = self.peer.ask(asked, version).results_by_topic_v3_and_below
        return [p.partition_error_code for p in found.results_by_partition]

    def add_offsets(self, version: int, group: str = "g") -> int:
        return int(self._ask(AddOffsetsToTxnRequest, version, group_id=group).error_code)

    def commit_offset(self, group: str, topic: str) -> int:
        asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = asked.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        fields = {"group_id": group, "topics": [asked(name=topic, partitions=[one])]}
        answer = self._ask(TxnOffsetCommitRequest, 3, **fields)
        return int(answer.topics[0].partitions[0].error_code)

    def send(self, value: bytes, version: int, sequence: int = 0, topic: str = "t") -> int:
        data = batch(value, producer=self.producer, sequence=sequence, transactional=True)
        asked = produce({(topic, 0): data}, transactional_id=self.name)
        ((code, _),) = produced(self.peer.ask(asked, version))
        return code

    def end(self, version: int, *, commit: bool = True) -> int:
        answer = self._ask(EndTxnRequest, version, committed=commit)
        if version >= 5 and answer.error_code == 0:
            self.producer = (answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


class ByTheWire(Served):
    """In the newest version of each request that means transaction version 1 or 2."""

    def __init__(self, db: eosdb.Database, peer: Peer, number: int = 0) -> None:
        super().__init__(db, number)
        self._peer = peer

    def _of(self, pid: int, epoch: int) -> Txn:
        return Txn(self._peer, self.name, (self.pid(pid), epoch))

    def init(self, expected: tuple[int, int] | None) -> str:
        pid, epoch = expected or (-1, -1)
        asked = self._of(pid, epoch)
        return NAMES[asked.init(producer_id=self.pid(pid), producer_epoch=epoch)]

    def add(self, pid: int, epoch: int, partitions: Any, groups: Any) -> str:
        asked = self._of(pid, epoch)
        codes = {code for tp in partitions for code in asked.add(0, topic=tp.topic)}
        (code,) = codes | {asked.add_offsets(4, group) for group in groups}
        return NAMES[code]

    def end(self, pid: int, epoch: int, committed: bool, version: int) -> str:
        return NAMES[self._of(pid, epoch).end({1: 4, 2: 5}[version], commit=committed)]

    def verify(
        self, pid: int, epoch: int, partition: TopicPartition | None, group: str | None
    ) -> str:
        asked = self._of(pid, epoch)
        if group is not None:
            return NAMES[asked.commit_offset(group, ORDERS.topic)]
        assert partition is not None
        return NAMES[asked.send(b"v", 9, topic=partition.topic)]


NAMES = {0: "fine", 47: STALE, 48: WRONG_STATE, 49: UNMAPPED, 51: WAIT, 90: FENCED}


@pytest.mark.parametrize("stories", [AT_REST_OR_OPEN, *((story,) for story in STORIES)],
                         ids=lambda given: given[0].name)  # fmt: skip
def test_the_wire_answers_as_the_table(db_path: Path, stories: tuple[Story, ...]) -> None:
    with opened(db_path) as db, db.serve() as server, Peer(server) as peer:
        for number, story in enumerate(stories, start=len(stories) > 1):
            serve(story, ByTheWire(db, peer, number))


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
