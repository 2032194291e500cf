"""Group membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A join waits until the generation is complete, and a follower's sync until the leader has sent the
assignment: the request calls the broker, is parked, and calls the broker again when it is woken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from eosdb.broker.broker import Broker
from eosdb.errors import EosdbError, InconsistentGroupProtocolError, MemberIdRequiredError
from eosdb.model.values import JoinGroupResult
from eosdb.wire.errors import NONE, coordinator_code_of
from eosdb.wire.session import Session

_MEMBER_ID_FROM: Final = 4
"""The first version of JoinGroup in which a new member gets an id before it joins (KIP-394)."""
_SKIP_FROM: Final = 9
"""The first version of JoinGroup that can tell the leader to skip the assignment (KIP-814)."""
_NAMES_PROTOCOL_FROM: Final = 5
"""The first version of SyncGroup that names the protocol (KIP-559)."""
_NULLABLE_PROTOCOL_FROM: Final = 7
_BATCH_FROM: Final = 3
"""The first version of LeaveGroup with several members, each given by member id or instance id."""
_LONGEST_WAIT_MS: Final = 60_000
"""The longest time until a parked request calls the broker again."""


class _Answer(Protocol):
    @property
    def is_complete(self) -> bool: ...


A = TypeVar("A", bound=_Answer)


class _ClosingError(EosdbError):
    """The server closes while the request waits; the client should look for the coordinator again."""


def join_group(session: Session, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    member_id = request.member_id
    instance = request.group_instance_id if version >= 5 else None
    timeout_ms = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms

    def join() -> JoinGroupResult:
        nonlocal member_id
        joined = session.broker.join_group(
            request.group_id,
            member_id=member_id,
            group_instance_id=instance,
            client_id=session.client_id,
            protocol_type=request.protocol_type,
            protocols=[(p.name, bytes(p.metadata)) for p in request.protocols],
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=max(timeout_ms, 1),
            client_host=f"/{session.client_host}",
            must_know_id=version >= _MEMBER_ID_FROM,
            waits=True,
        )
        member_id = joined.member_id
        return joined

    try:
        return _joined(
            _when_complete(
                session, join, lambda broker: broker.is_waiting(request.group_id, member_id)
            ),
            version,
        )
    except MemberIdRequiredError as error:
        return _not_joined(error.code, error.member_id, version)
    except EosdbError as error:
        return _not_joined(coordinator_code_of(error), request.member_id, version)


def sync_group(session: Session, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
    group_id, member_id = request.group_id, request.member_id
    if version >= _NAMES_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=InconsistentGroupProtocolError.code, assignment=b"")
    try:
        synced = _when_complete(
            session,
            lambda: session.broker.sync_group(
                group_id,
                request.generation_id,
                member_id,
                group_instance_id=request.group_instance_id if version >= 3 else None,
                assignments={a.member_id: bytes(a.assignment) for a in request.assignments},
                protocol_type=request.protocol_type if version >= 5 else None,
                protocol_name=request.protocol_name if version >= 5 else None,
                waits=True,
            ),
            lambda broker: broker.is_waiting(group_id, member_id, request.generation_id),
        )
    except EosdbError as error:
        return SyncGroupResponse(error_code=coordinator_code_of(error), assignment=b"")
    return SyncGroupResponse(
        error_code=NONE,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(session: Session, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
    code = NONE
    try:
        session.broker.heartbeat(
            request.group_id,
            request.generation_id,
            request.member_id,
            group_instance_id=request.group_instance_id if version >= 3 else None,
        )
    except EosdbError as error:
        code = coordinator_code_of(error)
    return HeartbeatResponse(error_code=code)


def leave_group(session: Session, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    """Remove members, with a result for each; versions 0 to 2 have one member and one error code."""
    names: list[tuple[str, str | None]] = [(request.member_id, None)]
    if version >= _BATCH_FROM:
        names = [(member.member_id, member.group_instance_id) for member in request.members]
    try:
        answers = session.broker.remove_members(request.group_id, names)
    except EosdbError as error:
        return LeaveGroupResponse(error_code=coordinator_code_of(error), members=[])
    codes = [NONE if error is None else coordinator_code_of(error) for error in answers]
    return LeaveGroupResponse(
        error_code=codes[0] if version < _BATCH_FROM else NONE,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=instance, error_code=code
            )
            for (member_id, instance), code in zip(names, codes, strict=True)
        ],
    )


def _when_complete(
    session: Session, ask: Callable[[], A], is_waiting: Callable[[Broker], bool]
) -> A:
    """Wait for the complete result."""

    def has_changed(broker: Broker) -> bool:
        try:
            return not is_waiting(broker)
        except EosdbError:
            return True  # Whoever asked is to be told.

    while not (answer := ask()).is_complete:
        session.parking.wait(has_changed, _LONGEST_WAIT_MS)
        if session.parking.is_closed:
            raise _ClosingError("the server is being closed")
    return answer


def _joined(joined: JoinGroupResult, version: int) -> JoinGroupResponse:
    # A leader that cannot be told to leave the assignment alone is not told that it leads.
    follows = joined.skip_assignment and version < _SKIP_FROM
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        error_code=NONE,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=(not follows and joined.leader) or "",
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            member(
                member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata
            )
            for m in (() if follows else joined.members)
        ],
    )


def _not_joined(code: int, member_id: str, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if version >= _NULLABLE_PROTOCOL_FROM else "",
        leader="",
        member_id=member_id,
        members=[],
    )
