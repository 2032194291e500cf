"""The broker answers requests about a transactional id as the table of the decisions says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.model.requests import TxnOffsetCommit
from tests.coordinator.transactions.requests import ORDERS, Served, opened
from tests.coordinator.transactions.table import AT_REST_OR_OPEN, STORIES, Story, serve


@pytest.fixture
def file(db_path: Path) -> Iterator[eosdb.Database]:
    with opened(db_path) as db:
        yield db


class ByTheBroker(Served):
    def _told(self, request: Any, *args: Any, **options: Any) -> str:
        try:
            request(*args, **options)
        except eosdb.ApiError as error:
            return error.name
        return "fine"

    def init(self, expected: tuple[int, int] | None) -> str:
        pid, epoch = expected or (-1, -1)
        asked = (self.name, 2_000, self.pid(pid), epoch)
        return self._told(self.db.broker.init_producer_id, *asked)

    def add(self, pid: int, epoch: int, partitions: Any, groups: Any) -> str:
        who, broker = (self.name, self.pid(pid), epoch), self.db.broker
        told = {self._told(broker.add_offsets_to_txn, *who, group) for group in groups}
        if partitions:
            told.add(self._told(broker.add_partitions_to_txn, *who, partitions))
        (one,) = told
        return one

    def end(self, pid: int, epoch: int, committed: bool, version: int) -> str:
        asked = (self.name, self.pid(pid), epoch, committed)
        return self._told(self.db.broker.end_txn, *asked, transaction_version=version)

    def verify(
        self, pid: int, epoch: int, partition: TopicPartition | None, group: str | None
    ) -> str:
        who, options = (self.pid(pid), epoch), {"transaction_version": 1}
        if group is not None:
            commit = TxnOffsetCommit(
                transactional_id=self.name,
                producer_id=who[0],
                producer_epoch=epoch,
                group=ConsumerGroupMetadata(group),
                offsets={ORDERS: OffsetAndMetadata(1)},
                transaction_version=1,
            )
            return self._told(self.db.broker.ask, commit)
        batch = RecordBatch([Record()], *who, 0, True)
        options["transactional_id"] = self.name  # type: ignore[assignment]
        return self._told(self.db.broker.append, partition, batch, **options)


@pytest.mark.slow
def test_a_request_about_an_id_that_waits_for_nothing(file: eosdb.Database) -> None:
    for number, row in enumerate(AT_REST_OR_OPEN, 1):
        serve(row, ByTheBroker(file, number))


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_requests_one_after_the_other(file: eosdb.Database, story: Story) -> None:
    serve(story, ByTheBroker(file))
