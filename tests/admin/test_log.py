"""The log as it is stored, and its snapshots."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.errors import InvalidRequestError
from tests.requests import Send

TP = TopicPartition("t", 0)


def test_batches_are_told_as_they_were_appended(classic_db: eosdb.Database) -> None:
    me = classic_db.broker.init_producer_id("x")
    classic_db.broker.add_partitions_to_txn("x", *me, [TP])
    records = [Record(b"k", b"v", (("h", b"1"),)), Record(value=b"w")]
    classic_db.broker.append(TP, RecordBatch(records, *me, 0, True), transactional_id="x")
    classic_db.broker.end_txn("x", *me, True)
    classic_db.broker.append(TP, RecordBatch([Record(value=b"plain")]))
    data, marker, plain = classic_db.admin.dump_log(TP)
    assert (data.base_offset, data.last_offset, data.count) == (0, 1, 2)
    assert (data.base_sequence, data.last_sequence) == (0, 1)
    assert (data.producer_id, data.producer_epoch) == me
    assert (data.is_transactional, data.is_control, data.transactional_id) == (True, False, "x")
    assert [record.value for record in data.records] == [b"v", b"w"]
    assert data.records[0].headers == (("h", b"1"),)
    assert (marker.base_offset, marker.is_control, marker.coordinator_epoch) == (2, True, 1)
    assert marker.records[0].control == "COMMIT"
    assert (plain.producer_id, plain.base_sequence, plain.last_sequence) == (-1, -1, -1)
    assert [batch.base_offset for batch in classic_db.admin.dump_log(TP, 1)] == [0, 2, 3]
    assert list(classic_db.admin.dump_log(TP, 4)) == []


def test_what_was_deleted_of_a_batch_is_missing_from_its_records(
    classic_db: eosdb.Database, send: Send
) -> None:
    send(b"a", b"b", b"c")
    send(b"d")
    classic_db.broker.delete_records(TP, 2)
    first, second = classic_db.admin.dump_log(TP)
    assert (first.base_offset, first.count) == (0, 3)
    assert [record.value for record in first.records] == [b"c"]
    assert second.base_offset == 3


def test_a_partition_that_is_none_has_no_log(classic_db: eosdb.Database) -> None:
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        list(classic_db.admin.dump_log(TopicPartition("t", 7)))


def test_snapshots_are_listed_and_told_under_kafkas_names(classic_db: eosdb.Database) -> None:
    with pytest.raises(InvalidRequestError, match="housekeeping` takes"):
        classic_db.admin.describe_snapshot(TP)
    me = classic_db.broker.init_producer_id()
    for i in range(3):
        classic_db.broker.append(
            TP, RecordBatch([Record(value=b"v"), Record(value=b"w")], *me, 2 * i)
        )
        classic_db.take_snapshot()
    assert [(s.offset, s.producers) for s in classic_db.admin.list_snapshots()] == [(4, 1), (6, 1)]
    (entry,) = classic_db.admin.describe_snapshot(TP)
    assert (entry.producer_id, entry.producer_epoch) == me
    assert (entry.first_sequence, entry.last_sequence) == (4, 5)
    assert (entry.last_offset, entry.offset_delta, entry.current_txn_first_offset) == (5, 1, -1)
    assert classic_db.admin.describe_snapshot(TP, 4)[0].last_sequence == 3
    with pytest.raises(InvalidRequestError, match="there are some at 4, 6"):
        classic_db.admin.describe_snapshot(TP, 5)
