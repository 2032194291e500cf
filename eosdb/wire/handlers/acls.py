"""Access control lists: DescribeAcls, CreateAcls and DeleteAcls.

An ACL of eosdb has Kafka's fields except the host, which is always `*`.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from kafka.protocol.admin.acl import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from eosdb.admin.acl_filter import AclFilter
from eosdb.coordinator.authorizer import check_acl
from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.events.kinds import Acl
from eosdb.wire.errors import NONE, code_of, message_of
from eosdb.wire.session import Session

_ANY_HOST: Final = "*"
_Resource = DescribeAclsResponse.DescribeAclsResource
_Result = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult


class _Codes(NamedTuple):
    """The protocol's numbers in an ACL or a filter; 1 means ANY in each of them."""

    resource_type: int
    pattern_type: int
    operation: int
    permission: int


def describe_acls(
    session: Session, request: DescribeAclsRequest, version: int
) -> DescribeAclsResponse:
    try:
        wanted = _filter(request)
        rows = session.admin.list_acls()
    except EosdbError as error:
        return DescribeAclsResponse(
            error_code=code_of(error), error_message=message_of(error), resources=[]
        )
    matching = [acl for acl in rows if wanted is not None and wanted.matches(acl)]
    return DescribeAclsResponse(
        error_code=NONE,
        error_message=None,
        resources=[
            _Resource(
                resource_type=_codes(acls[0]).resource_type,
                resource_name=name,
                pattern_type=_codes(acls[0]).pattern_type,
                acls=[
                    _Resource.AclDescription(
                        principal=acl.principal, host=_ANY_HOST,
                        operation=_codes(acl).operation, permission_type=_codes(acl).permission,
                    )
                    for acl in acls
                ],
            )
            for (_, name, _), group in groupby(sorted(matching, key=_resource), key=_resource)
            for acls in (list(group),)
        ],
    )  # fmt: skip


def create_acls(session: Session, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    """Create the valid ACLs in one commit."""
    rows, errors = list[Acl](), dict[int, EosdbError]()
    for index, creation in enumerate(request.creations):
        try:
            rows.append(_row(creation))
        except EosdbError as error:
            errors[index] = error
    try:
        session.admin.create_acls(rows)
    except EosdbError as error:
        errors = {index: errors.get(index, error) for index in range(len(request.creations))}
    return CreateAclsResponse(
        results=[
            _Result(
                error_code=code_of(errors[index]) if index in errors else NONE,
                error_message=message_of(errors[index]) if index in errors else None,
            )
            for index in range(len(request.creations))
        ]
    )


def delete_acls(session: Session, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
    """Apply all filters in one commit; an ACL that several filters match is in the result of each."""
    filters, errors = dict[int, AclFilter | None](), dict[int, EosdbError]()
    for index, requested in enumerate(request.filters):
        try:
            filters[index] = _filter(requested)
        except EosdbError as error:
            errors[index] = error
    removed = list[Acl]()
    try:
        wanted = [filter_ for filter_ in filters.values() if filter_ is not None]
        removed = session.admin.delete_acls(lambda acl: any(f.matches(acl) for f in wanted))
    except EosdbError as error:
        errors = {index: errors.get(index, error) for index in range(len(request.filters))}
    return DeleteAclsResponse(
        filter_results=[
            _Deleted(
                error_code=code_of(errors[index]) if index in errors else NONE,
                error_message=message_of(errors[index]) if index in errors else None,
                matching_acls=[
                    _deleted(acl)
                    for acl in removed
                    for filter_ in (filters.get(index),)
                    if filter_ is not None and filter_.matches(acl)
                ],
            )
            for index in range(len(request.filters))
        ]
    )


def _filter(
    request: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter,
) -> AclFilter | None:
    """The filter; None if it can match no ACL, as one for another host."""
    if request.host_filter not in (None, _ANY_HOST):
        return None
    codes = _Codes(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    _check(codes)
    resource_type, operation, permission = (
        None if code == 1 else _word(kind, code)
        for kind, code in (
            (ACLResourceType, codes.resource_type),
            (ACLOperation, codes.operation),
            (ACLPermissionType, codes.permission),
        )
    )
    return AclFilter(
        resource_type,
        request.resource_name_filter,
        _word(ACLResourcePatternType, codes.pattern_type),
        request.principal_filter,
        operation,
        permission,
    )


def _row(creation: CreateAclsRequest.AclCreation) -> Acl:
    if creation.host != _ANY_HOST:
        raise InvalidRequestError(
            f"host: got {creation.host!r}, expected {_ANY_HOST}; eosdb's ACLs are for all hosts"
        )
    return check_acl(
        Acl(
            creation.principal,
            _word(ACLOperation, creation.operation),
            _word(ACLResourceType, creation.resource_type),
            creation.resource_name,
            _word(ACLResourcePatternType, creation.resource_pattern_type),
            _word(ACLPermissionType, creation.permission_type),
        )
    )


def _deleted(acl: Acl) -> _Deleted.DeleteAclsMatchingAcl:
    codes = _codes(acl)
    return _Deleted.DeleteAclsMatchingAcl(
        error_code=NONE, error_message=None, resource_type=codes.resource_type,
        resource_name=acl.resource_name, pattern_type=codes.pattern_type, principal=acl.principal,
        host=_ANY_HOST, operation=codes.operation, permission_type=codes.permission,
    )  # fmt: skip


def _codes(acl: Acl) -> _Codes:
    return _Codes(
        int(ACLResourceType[acl.resource_type.upper()]),
        int(ACLResourcePatternType[acl.pattern_type.upper()]),
        int(ACLOperation[acl.operation.upper()]),
        int(ACLPermissionType[acl.permission.upper()]),
    )


def _word(kind: type[IntEnum], code: int) -> str:
    """eosdb's word for a number of the protocol. An unknown number becomes a word that is refused later, by
    name."""
    return kind(code).name.lower() if code in kind._value2member_map_ else str(code)


def _check(codes: _Codes) -> None:
    if min(codes) < 1:
        raise InvalidRequestError(f"a filter with an unknown element: {codes}; expected 1 for any")


def _resource(acl: Acl) -> tuple[str, str, str]:
    return acl.resource_type, acl.resource_name, acl.pattern_type
