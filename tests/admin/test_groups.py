"""Where groups stand, and moving them."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.errors import InvalidRequestError

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _records(classic_db: eosdb.Database, clock: ManualClock) -> None:
    """Offsets 0 to 9, one a second; the first two deleted."""
    for i in range(10):
        classic_db.broker.append(TP, RecordBatch([Record(value=b"%d" % i)]))
        clock.advance(1_000)
    classic_db.broker.delete_records(TP, 2)


def reset(db: eosdb.Database, **target: Any) -> tuple[int, int]:
    (change,) = db.admin.reset_offsets("g", [TP], **target)
    return change.before, change.after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "after"),
    [
        ({"to_earliest": True}, 2),
        ({"to_latest": True}, 10),
        ({"to_current": True}, 5),
        ({"to_offset": 7}, 7),
        ({"to_offset": 0}, 2),
        ({"to_offset": 99}, 10),
        ({"shift_by": 3}, 8),
        ({"shift_by": -2}, 3),
        ({"shift_by": -20}, 2),
        ({"shift_by": 20}, 10),
    ],
)
def test_offsets_are_set_to_their_target(
    classic_db: eosdb.Database, target: dict[str, Any], after: int
) -> None:
    classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(5)})
    assert reset(classic_db, **target) == (5, after)
    assert classic_db.broker.offset_fetch("g")[TP].offset == 5, "nothing is done unasked"
    assert reset(classic_db, **target, execute=True) == (5, after)
    assert classic_db.broker.offset_fetch("g")[TP].offset == after
    assert classic_db.verify().ok


def test_a_time_becomes_the_first_record_from_it_on(
    classic_db: eosdb.Database, clock: ManualClock
) -> None:
    now = clock.time_ms()
    assert reset(classic_db, to_timestamp=now - 4_500, execute=True) == (-1, 6)
    assert reset(classic_db, to_timestamp=now, execute=True) == (6, 10)
    assert reset(classic_db, to_timestamp=0) == (10, 2)


def test_a_group_without_offset_has_none_to_shift(classic_db: eosdb.Database) -> None:
    with pytest.raises(InvalidRequestError, match="no committed offset"):
        reset(classic_db, shift_by=1, execute=True)
    assert reset(classic_db, to_current=True) == (-1, 10)
    assert classic_db.broker.list_groups() == []


def test_a_group_with_members_is_left_alone(classic_db: eosdb.Database) -> None:
    with classic_db.consumer("g") as consumer:
        consumer.subscribe(["t"])
        for execute in (False, True):
            with pytest.raises(eosdb.NonEmptyGroupError, match="Stable with 1 members"):
                reset(classic_db, to_earliest=True, execute=execute)
    assert reset(classic_db, to_earliest=True, execute=True) == (-1, 2)


@pytest.mark.parametrize(
    "target",
    [{}, {"to_earliest": True, "to_latest": True}, {"to_offset": -1}, {"shift_by": 1.5}],
)
def test_a_target_that_is_none_is_refused(
    classic_db: eosdb.Database, target: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        reset(classic_db, **target)


def test_partitions_that_are_none_are_refused_all_or_nothing(classic_db: eosdb.Database) -> None:
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        classic_db.admin.reset_offsets(
            "g", [TP, TopicPartition("t", 3)], to_earliest=True, execute=True
        )
    assert classic_db.broker.offset_fetch("g") == {}


def test_a_group_is_described_with_its_readers(classic_db: eosdb.Database) -> None:
    classic_db.broker.offset_commit("g", {TP: OffsetAndMetadata(4, "m")})
    with classic_db.consumer("g", client_id="me") as consumer:
        consumer.subscribe(["t"])
        report = classic_db.admin.describe_group_offsets("g")
        (standing,) = report.partitions
        assert (report.state, report.members) == ("Stable", 1)
        assert (standing.committed_offset, standing.metadata, standing.lag) == (4, "m", 6)
        assert standing.client_id == "me"
        assert standing.member_id is not None
    with pytest.raises(eosdb.GroupIdNotFoundError):
        classic_db.admin.describe_group_offsets("nobody")
