"""Group membership at the request level: sessions on the clock, several processes, the journal, and zombies
whose commits are refused (KIP-447)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import JoinGroupResult, ManualClock, TopicPartition
from eosdb.model import requests
from tests.cases import each

TP = TopicPartition("t", 0)
RANGE = [("range", b"what I want")]


@pytest.fixture
def db(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(db_path, clock=clock, durability="normal") as opened:
        opened.admin.create_topic("t")
        yield opened
        assert opened.verify().ok


def join(
    db: eosdb.Database, member_id: str = "", instance: str | None = None, session_ms: int = 10_000
) -> JoinGroupResult:
    return db.broker.join_group(
        "g",
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        protocols=RANGE,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=20_000,
    )


def alone(db: eosdb.Database) -> JoinGroupResult:
    """The only member, with its assignment."""
    me = join(db)
    db.broker.sync_group("g", me.generation_id, me.member_id, assignments={me.member_id: b"all"})
    return me


def pair(db: eosdb.Database) -> tuple[JoinGroupResult, JoinGroupResult]:
    """Two members of one stable generation."""
    first = alone(db)
    second = join(db)
    first = join(db, first.member_id)
    second = join(db, second.member_id)
    for me in (first, second):
        db.broker.sync_group(
            "g",
            me.generation_id,
            me.member_id,
            assignments={first.member_id: b"1", second.member_id: b"2"},
        )
    return first, second


def test_all_of_those_named_leave_or_none(db: eosdb.Database) -> None:
    first, second = pair(db)
    for unknown in ([first.member_id, "nobody"], "nobody"):
        with pytest.raises(eosdb.UnknownMemberIdError):
            db.broker.leave_group("g", unknown)
    with pytest.raises(eosdb.NonEmptyGroupError):
        db.broker.delete_group("g")
    db.broker.leave_group("g", [first.member_id, second.member_id])
    db.broker.delete_group("g")
    with pytest.raises(eosdb.GroupIdNotFoundError):
        db.broker.describe_group("g")


def test_a_member_that_waited_for_the_leader_has_its_own_session_in_the_next_rebalance(
    db: eosdb.Database, clock: ManualClock
) -> None:
    first, second = pair(db)
    join(db)
    first, second = join(db, first.member_id), join(db, second.member_id)
    waiting = requests.SyncGroup("g", second.generation_id, second.member_id, waits=True)
    assert not db.broker.ask(waiting).is_complete
    join(db)
    clock.advance(10_000)
    assert second.member_id in members(db)
    clock.advance(1)
    assert second.member_id not in members(db)


def members(db: eosdb.Database) -> set[str]:
    return {member.member_id for member in db.broker.describe_group("g").members}


def test_the_group_is_the_same_for_every_process(
    db: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    first = alone(db)
    with eosdb.connect(db_path, clock=clock) as other:
        second = join(other)
        assert join(db, first.member_id).is_complete
        assert join(other, second.member_id).generation_id == 2
        other.broker.leave_group("g", second.member_id)
    assert join(db, first.member_id).generation_id == 3


def test_every_change_is_in_the_journal_and_comes_back_by_replay(db: eosdb.Database) -> None:
    pair(db)
    before = db.broker.describe_group("g")
    states = [
        row[0]
        for row in db.query(
            "SELECT json_extract(detail, '$.state') FROM journal WHERE kind = 'GroupChanged'"
        ).rows
    ]
    assert states == [
        "CompletingRebalance", "Stable", "PreparingRebalance", "CompletingRebalance", "Stable",
    ]  # fmt: skip
    db.rebuild()
    assert db.broker.describe_group("g") == before


@each(
    ("options", "error"),
    [
        ({"session_timeout_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"protocols": [("range", "text")]}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": 0}, "INVALID_REQUEST"),
    ],
)
def test_what_cannot_join(db: eosdb.Database, options: dict[str, object], error: str) -> None:
    with pytest.raises(eosdb.ApiError) as refused:
        db.broker.join_group("g", **{"protocols": RANGE, **options})  # type: ignore[arg-type]
    assert refused.value.name == error
    with pytest.raises(eosdb.InvalidGroupIdError):
        db.broker.join_group("", protocols=RANGE)


def test_a_member_id_is_given_out_to_join_with(db: eosdb.Database, clock: ManualClock) -> None:
    """Without a trace in the journal, until somebody joins with it."""

    def give_out() -> str:
        with pytest.raises(eosdb.MemberIdRequiredError) as raised:
            db.broker.join_group("g", protocols=RANGE, must_know_id=True)
        return raised.value.member_id

    first = give_out()
    (before,) = db.query("SELECT max(position) FROM journal").rows
    second, third = give_out(), give_out()
    assert len({first, second, third}) == 3
    assert list(db.query("SELECT max(position) FROM journal").rows) == [before]
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.heartbeat("g", 0, first)
    assert db.broker.join_group("g", member_id=first, protocols=RANGE).is_complete
    assert db.broker.ask(requests.RemoveMembers("g", [(second, None)])) == [None]
    clock.advance(45_001)
    for gone in (second, third):
        with pytest.raises(eosdb.UnknownMemberIdError):
            db.broker.join_group("g", member_id=gone, protocols=RANGE)
