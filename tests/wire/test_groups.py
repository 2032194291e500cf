"""Membership over the wire, request by request: what each version is answered, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer.group import (
    LeaveGroupRequest,
)

import eosdb
from eosdb import ManualClock
from eosdb.wire.server import Server
from tests.cases import each
from tests.waiting import eventually
from tests.wire.group_requests import beat, join, leave, sync
from tests.wire.peer import Peer
from tests.wire.waiting import Waiting

UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 25, 22, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL = 79, 82, 23
INVALID_SESSION_TIMEOUT, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE = 26, 24, 15


@pytest.fixture(autouse=True)
def verified(db: eosdb.Database) -> Iterator[None]:
    yield
    assert db.verify().ok


@pytest.fixture
def one(server: Server) -> Iterator[Peer]:
    with Peer(server) as made:
        yield made


@pytest.fixture
def two(server: Server) -> Iterator[Peer]:
    with Peer(server) as made:
        yield made


def enter(peer: Peer, version: int = 9) -> Any:
    """Join as a client does it: with the id that the first answer brings."""
    given = join(peer, "", version)
    assert given.error_code == MEMBER_ID_REQUIRED
    return join(peer, given.member_id, version)


def members(db: eosdb.Database) -> list[str]:
    return [member.member_id for member in db.broker.describe_group("g").members]


def in_state(db: eosdb.Database, state: str) -> bool:
    return db.broker.describe_group("g").state == state


def lease(db: eosdb.Database, member_id: str) -> int:
    """Until when a member counts as alive."""
    found = db.query("SELECT expires FROM group_sessions WHERE member_id = ?", (member_id,))
    return int(next(iter(found.rows))[0])


def two_members(db: eosdb.Database, one: Peer, two: Peer) -> tuple[Any, Any]:
    """Two members whose generation is formed, and not assigned yet: the leader first."""
    first = enter(one)
    second = Waiting(lambda: enter(two))
    eventually(lambda: len(members(db)) == 2)
    assert not second.is_answered
    leader, follower = join(one, first.member_id), second.answer()
    assert {member.member_id for member in leader.members} == {first.member_id, follower.member_id}
    assert follower.members == []
    return leader, follower


@pytest.mark.parametrize("version", range(4, 10))
def test_a_member_id_is_given_out_before_it_is_joined_with(
    db: eosdb.Database, one: Peer, version: int
) -> None:
    given = join(one, "", version)
    assert (given.error_code, given.generation_id) == (MEMBER_ID_REQUIRED, -1)
    assert given.member_id.startswith("peer-")
    assert db.broker.list_groups() == []
    joined = join(one, given.member_id, version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id == given.member_id
    assert [member.metadata for member in joined.members] == [b"what I want"]


@pytest.mark.parametrize("version", range(4))
def test_a_member_of_an_old_version_joins_at_once(one: Peer, version: int) -> None:
    joined = join(one, "", version)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)


def test_a_rebalance_of_the_first_version_takes_as_long_as_a_session(
    db: eosdb.Database, clock: ManualClock, one: Peer, two: Peer
) -> None:
    join(one, "", 0, session_timeout_ms=30_000)
    second = Waiting(lambda: join(two, "", 0, session_timeout_ms=30_000))
    eventually(lambda: len(members(db)) == 2)
    clock.advance(30_001)
    assert second.answer().generation_id == 2


def test_a_waiting_join_outlives_its_session(
    db: eosdb.Database, clock: ManualClock, one: Peer, two: Peer
) -> None:
    first = enter(one)
    second = Waiting(lambda: enter(two))
    eventually(lambda: in_state(db, "PreparingRebalance"))
    for _ in range(3):
        clock.advance(9_000)
        assert beat(one, first) == REBALANCE_IN_PROGRESS
    join(one, first.member_id)
    assert second.answer().generation_id == 2
    # From the answer on it is alive for one session, as everybody.
    clock.advance(10_001)
    eventually(lambda: in_state(db, "Empty"))


def test_a_sync_waits_for_the_assignment_of_the_leader(
    db: eosdb.Database, one: Peer, two: Peer
) -> None:
    leader, follower = two_members(db, one, two)
    second = Waiting(lambda: sync(two, follower))
    shares = {leader.member_id: b"some", follower.member_id: b"others"}
    own = sync(one, leader, gives=shares)
    assert (own.error_code, own.assignment) == (0, b"some")
    assert (own.protocol_type, own.protocol_name) == ("consumer", "range")
    assert second.answer().assignment == b"others"
    assert sync(two, follower, 0).assignment == b"others"


def test_a_waiting_sync_outlives_its_session_and_hears_of_the_next_rebalance(
    db: eosdb.Database, clock: ManualClock, one: Peer, two: Peer
) -> None:
    leader, follower = two_members(db, one, two)
    second = Waiting(lambda: sync(two, follower))
    eventually(lambda: lease(db, follower.member_id) > clock.time_ms() + 60_000)
    for _ in range(6):
        clock.advance(9_000)
        assert beat(one, leader) == 0
    assert not second.is_answered
    clock.advance(9_000)
    assert second.answer().error_code == REBALANCE_IN_PROGRESS
    assert members(db) == [follower.member_id]


def test_a_static_member_that_returns_leads_without_assigning(
    db: eosdb.Database, one: Peer, two: Peer
) -> None:
    first = join(one, group_instance_id="i")
    assert (
        sync(one, first, group_instance_id="i", gives={first.member_id: b"all"}).assignment
        == b"all"
    )
    again = join(two, group_instance_id="i")
    assert (again.generation_id, again.skip_assignment) == (1, True)
    assert again.leader == again.member_id != first.member_id
    assert len(again.members) == 1
    older = join(two, version=8, group_instance_id="i")
    assert (older.generation_id, older.leader, older.members) == (1, "", [])
    fenced = join(one, first.member_id, group_instance_id="i")
    assert (fenced.error_code, fenced.member_id) == (FENCED_INSTANCE_ID, first.member_id)


@each("version", range(3))
def test_a_member_leaves(db: eosdb.Database, one: Peer, version: int) -> None:
    joined = enter(one)
    leaving = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert one.ask(leaving, version).error_code == 0
    assert in_state(db, "Empty")
    assert one.ask(leaving, version).error_code == UNKNOWN_MEMBER_ID


@each("version", [3, 4, 5])
def test_each_of_several_leaving_members_has_its_answer(
    db: eosdb.Database, one: Peer, version: int
) -> None:
    static = join(one, group_instance_id="i")
    pending = join(one)
    names = [("", "i"), ("", "nobody"), (pending.member_id, None), ("made-up", None)]
    left = leave(one, *names, version=version)
    assert left == [0, UNKNOWN_MEMBER_ID, 0, UNKNOWN_MEMBER_ID]
    assert in_state(db, "Empty")
    assert join(one, pending.member_id).error_code == UNKNOWN_MEMBER_ID
    assert join(one, static.member_id, group_instance_id="i").error_code == UNKNOWN_MEMBER_ID


def test_what_cannot_be_joined_with_is_refused(one: Peer) -> None:
    assert join(one, session_timeout_ms=10).error_code == INVALID_SESSION_TIMEOUT
    assert join(one, group_id="").error_code == INVALID_GROUP_ID
    for version in range(10):
        assert join(one, "made-up", version).error_code == UNKNOWN_MEMBER_ID


def test_the_end_of_the_server_answers_those_who_wait(
    db: eosdb.Database, server: Server, one: Peer, two: Peer
) -> None:
    enter(one)
    second = Waiting(lambda: enter(two))
    eventually(lambda: in_state(db, "PreparingRebalance"))
    server.close()
    assert second.answer().error_code == COORDINATOR_NOT_AVAILABLE


def test_the_host_of_a_member_is_told(db: eosdb.Database, one: Peer) -> None:
    enter(one)
    (member,) = db.broker.describe_group("g").members
    assert (member.client_id, member.client_host) == ("peer", "/127.0.0.1")
