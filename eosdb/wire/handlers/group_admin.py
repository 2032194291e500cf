"""Group administration: DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

from eosdb.errors import EosdbError, GroupIdNotFoundError
from eosdb.model.values import GroupDescription, GroupState, GroupType
from eosdb.wire.errors import GROUP_ID_NOT_FOUND, NONE, coordinator_code_of, message_of
from eosdb.wire.session import Session

_NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups that reports an unknown group as an error (KIP-1043)."""
_Group = DescribeGroupsResponse.DescribedGroup


def describe_groups(
    session: Session, request: DescribeGroupsRequest, version: int
) -> DescribeGroupsResponse:
    with_operations = version >= 3 and request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=[
            _described(session, group_id, version, with_operations) for group_id in request.groups
        ]
    )


def list_groups(session: Session, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
    states = {state.lower() for state in (request.states_filter if version >= 4 else ())}
    types = {kind.lower() for kind in (request.types_filter if version >= 5 else ())}
    try:
        groups = session.broker.describe_groups()
    except EosdbError as error:
        return ListGroupsResponse(error_code=coordinator_code_of(error), groups=[])
    return ListGroupsResponse(
        error_code=NONE,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type.value,
            )
            for group in groups
            if (not states or group.state.lower() in states)
            and (not types or group.group_type.value in types)
        ],
    )


def delete_groups(
    session: Session, request: DeleteGroupsRequest, version: int
) -> DeleteGroupsResponse:
    codes = {}
    for group_id in request.groups_names:
        try:
            session.broker.delete_group(group_id)
            codes[group_id] = NONE
        except EosdbError as error:
            codes[group_id] = coordinator_code_of(error)
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in codes.items()
        ]
    )


def _described(session: Session, group_id: str, version: int, with_operations: bool) -> _Group:
    try:
        group = session.broker.describe_group(group_id)
        if group.group_type is not GroupType.CLASSIC:
            raise GroupIdNotFoundError(
                f"group {group_id!r} is none of the classic protocol; use ConsumerGroupDescribe"
            )
    except GroupIdNotFoundError as error:
        code = GROUP_ID_NOT_FOUND if version >= _NOT_FOUND_FROM else NONE
        return _without_members(group_id, code, GroupState.DEAD.value, message_of(error))
    except EosdbError as error:
        return _without_members(group_id, coordinator_code_of(error), "", message_of(error))
    # What members sent, and the protocol chosen, are told of a stable group only (ClassicGroup.describe).
    is_stable = group.state == GroupState.STABLE.value
    return _Group(
        error_code=NONE,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, with_metadata=is_stable),
        authorized_operations=session.operations(with_operations, "group", group_id),
    )


def _without_members(group_id: str, code: int, state: str, message: str) -> _Group:
    return _Group(
        error_code=code,
        error_message=message if code else None,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _members(group: GroupDescription, *, with_metadata: bool) -> list[_Group.DescribedGroupMember]:
    return [
        _Group.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata if with_metadata else b"",
            member_assignment=member.assignment,
        )
        for member in group.members
    ]
