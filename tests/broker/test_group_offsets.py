"""Offsets of groups, plain and inside transactions."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import (
    ManualClock,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.requests import TP


def test_the_later_commit_request_wins(classic_db: eosdb.Database) -> None:
    who = classic_db.broker.init_producer_id("a")
    for first, offset in ((True, 5), (False, 9)):
        classic_db.broker.add_offsets_to_txn("a", *who, "g")
        if first:
            classic_db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
        classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(5)})
        if not first:
            classic_db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(9)})
        classic_db.broker.end_txn("a", *who, True)
        assert classic_db.broker.offset_fetch("g")[TP].offset == offset


def test_deleting_an_offset_takes_the_pending_one_too(classic_db: eosdb.Database) -> None:
    who = classic_db.broker.init_producer_id("a")
    classic_db.broker.add_offsets_to_txn("a", *who, "g")
    classic_db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    assert classic_db.broker.offset_delete("g", [TP]) is None
    classic_db.broker.end_txn("a", *who, True)
    assert classic_db.broker.offset_fetch("g") == {}


def test_offset_commits_are_all_or_nothing(classic_db: eosdb.Database) -> None:
    nowhere = TopicPartition("nope", 0)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.broker.offset_commit(
            "g", {TP: OffsetAndMetadata(1), nowhere: OffsetAndMetadata(1)}
        )
    with pytest.raises(eosdb.OffsetMetadataTooLargeError):
        classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(1, "m" * 4_097)})
    assert classic_db.broker.offset_fetch("g") == {}


def test_a_commit_of_no_offsets_succeeds(classic_db: eosdb.Database) -> None:
    who = classic_db.broker.init_producer_id("a")
    classic_db.broker.offset_commit("g", {})
    classic_db.broker.add_offsets_to_txn("a", *who, "g")
    classic_db.broker.txn_offset_commit("a", "g", *who, {})
    assert classic_db.broker.offset_fetch("g") == {}


def test_offsets_of_partitions_that_are_not_there_cannot_be_deleted(
    classic_db: eosdb.Database,
) -> None:
    classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.broker.offset_delete("g", [TP, TopicPartition("nope", 0)])
    assert classic_db.broker.offset_fetch("g") == {TP: OffsetAndMetadata(1)}


def test_an_empty_group_id_is_refused_inside_transactions_only(classic_db: eosdb.Database) -> None:
    who = classic_db.broker.init_producer_id("a")
    classic_db.broker.offset_commit("", {TP: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.InvalidGroupIdError):
        classic_db.broker.txn_offset_commit("a", "", *who, {TP: OffsetAndMetadata(1)})


def test_require_stable_looks_at_what_was_asked(classic_db: eosdb.Database) -> None:
    classic_db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    who = classic_db.broker.init_producer_id("a")
    classic_db.broker.add_offsets_to_txn("a", *who, "g")
    classic_db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    assert classic_db.broker.offset_fetch("g", require_stable=True) == {}
    assert classic_db.broker.offset_fetch("g", [u], require_stable=True) == {}
    for asked in ([TP], [u, TP]):
        with pytest.raises(eosdb.UnstableOffsetCommitError):
            classic_db.broker.offset_fetch("g", asked, require_stable=True)


def test_offsets_expire_but_not_under_a_pending_one(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    classic_db.admin.create_topic("u", config={"retention.ms": -1})
    u = TopicPartition("u", 0)
    classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), u: OffsetAndMetadata(1)})
    clock.advance(10_080 * 60_000 - 1)
    who = classic_db.broker.init_producer_id("a")
    classic_db.broker.add_offsets_to_txn("a", *who, "g")
    classic_db.broker.txn_offset_commit("a", "g", *who, {u: OffsetAndMetadata(2)})
    clock.advance(1)
    assert classic_db.housekeeping().expired_offsets == 1
    assert set(classic_db.broker.offset_fetch("g")) == {u}
