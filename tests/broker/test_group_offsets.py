"""Offsets of groups, plain and inside transactions."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import (
    ManualClock,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.broker.conftest import TP


def test_the_later_commit_request_wins(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    for first, offset in ((True, 5), (False, 9)):
        db.broker.add_offsets_to_txn("a", *who, "g")
        if first:
            db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(5)})
        if not first:
            db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(9)})
        db.broker.end_txn("a", *who, True)
        assert db.broker.offset_fetch("g")[TP].offset == offset


def test_deleting_an_offset_takes_the_pending_one_too(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    db.broker.offset_delete("g", [TP])
    db.broker.end_txn("a", *who, True)
    assert db.broker.offset_fetch("g") == {}


def test_offset_commits_are_all_or_nothing(db: eosdb.Database) -> None:
    nowhere = TopicPartition("nope", 0)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), nowhere: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.OffsetMetadataTooLargeError):
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(1, "m" * 4_097)})
    assert db.broker.offset_fetch("g") == {}


def test_generations_of_a_group_without_members(db: eosdb.Database) -> None:
    offsets = {TP: OffsetAndMetadata(1)}
    with pytest.raises(eosdb.GroupIdNotFoundError):
        db.broker.offset_commit("g", offsets, generation_id=0)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.txn_offset_commit("a", "g", *who, offsets, generation_id=0)
    db.broker.offset_commit("g", offsets, member_id="whoever")
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.offset_commit("g", offsets, generation_id=0)
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.txn_offset_commit("a", "g", *who, offsets, generation_id=0)


def test_an_empty_group_id_is_refused_inside_transactions_only(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    db.broker.offset_commit("", {TP: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.InvalidGroupIdError):
        db.broker.txn_offset_commit("a", "", *who, {TP: OffsetAndMetadata(1)})


def test_require_stable_looks_at_what_was_asked(db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    assert db.broker.offset_fetch("g", require_stable=True) == {}
    assert db.broker.offset_fetch("g", [u], require_stable=True) == {}
    for asked in ([TP], [u, TP]):
        with pytest.raises(eosdb.UnstableOffsetCommitError):
            db.broker.offset_fetch("g", asked, require_stable=True)


def test_offsets_expire_but_not_under_a_pending_one(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("u", config={"retention.ms": -1})
    u = TopicPartition("u", 0)
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), u: OffsetAndMetadata(1)})
    clock.advance(10_080 * 60_000 - 1)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {u: OffsetAndMetadata(2)})
    clock.advance(1)
    assert db.housekeeping().expired_offsets == 1
    assert set(db.broker.offset_fetch("g")) == {u}
