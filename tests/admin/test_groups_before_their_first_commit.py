"""A group that has committed nothing yet is behind by what it has not read, wherever that is shown."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition

TP = TopicPartition("orders", 0)


@pytest.fixture
def stuck(db: eosdb.Database) -> eosdb.Database:
    """A member of `reading` reads 7 records and commits nothing; the first offsets of `waiting` are in a
    transaction that stays open."""
    db.admin.create_topic("orders")
    db.producer().send_many("orders", map(str, range(7)))
    consumer = db.consumer("reading", auto_offset_reset="earliest")
    consumer.subscribe("orders")
    assert len(consumer.poll(1_000)) == 7
    worker = db.producer(transactional_id="worker")
    worker.init_transactions()
    worker.begin_transaction()
    worker.send_offsets_to_transaction({TP: OffsetAndMetadata(3)}, "waiting")
    return db


@pytest.mark.parametrize("group_id", ["reading", "waiting"])
def test_it_is_behind_by_the_whole_log(stuck: eosdb.Database, group_id: str) -> None:
    (partition,) = stuck.admin.describe_group_offsets(group_id).partitions
    assert (partition.committed_offset, partition.lag) == (-1, 7)
    figures = {group.group_id: group for group in stuck.admin.overview().groups}[group_id]
    assert figures.positions == (("orders", 0, -1, 7, -1),)
    assert figures.behind == 7
    lag = f'eosdb_group_lag_offsets{{group="{group_id}",topic="orders",partition="0"}} 7'
    assert lag in stuck.metrics_text()
    assert "eosdb_group_committed_offset{" not in stuck.metrics_text()


def test_records_that_are_gone_are_not_counted(stuck: eosdb.Database) -> None:
    stuck.broker.delete_records(TP, 5)
    (partition,) = stuck.admin.describe_group_offsets("reading").partitions
    assert partition.lag == 2
    assert {group.behind for group in stuck.admin.overview().groups} == {2}


def test_info_counts_the_groups_that_are_listed(stuck: eosdb.Database) -> None:
    stuck.broker.offset_commit("done", {TP: OffsetAndMetadata(7)})
    assert stuck.broker.list_groups() == ["done", "reading", "waiting"]
    assert stuck.info()["groups"] == 3
