"""DescribeAcls: the ACLs that a filter matches, by resource.

Version 1: prefixed patterns (KIP-290); 2: flexible; 3: users as resources (KIP-373), which eosdb does not
have. Also converts ACLs to and from the protocol's numbers. Their host is always `*`.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import Any, Final

from kafka.protocol.admin.acl import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    DescribeAclsRequest,
)

from eosdb.admin.access import AclFilter
from eosdb.coordinator.authorizer import check_acl
from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import Acl
from eosdb.wire.apis import Fields, Session, serves

ANY_HOST: Final = "*"
_ANY: Final = 1


@serves(DescribeAclsRequest, 1, 3)
def describe_acls(session: Session, request: DescribeAclsRequest, _: int) -> Fields:
    filter_ = wanted(request)
    rows = session.admin.list_acls()
    matching = [acl for acl in rows if filter_ is not None and filter_.matches(acl)]
    return {
        "resources": [
            {**of_resource(acls[0]), "acls": [of_principal(acl) for acl in acls]}
            for _, group in groupby(sorted(matching, key=_resource), key=_resource)
            for acls in (list(group),)
        ]
    }


def _resource(acl: Acl) -> tuple[str, str, str]:
    return acl.resource_type, acl.resource_name, acl.pattern_type


def wanted(filter_: Any) -> AclFilter | None:
    """The ACL filter of a request; None if it matches no ACL, because it is for another host."""
    if filter_.host_filter not in (None, ANY_HOST):
        return None
    codes = (
        filter_.resource_type_filter,
        filter_.pattern_type_filter,
        filter_.operation,
        filter_.permission_type,
    )
    if min(codes) < _ANY:
        raise InvalidRequestError(
            f"filter: got the codes {codes}, expected known ones, or {_ANY} for any"
        )
    resource_type, operation, permission = (
        None if code == _ANY else _word(kind, code)
        for kind, code in (
            (ACLResourceType, filter_.resource_type_filter),
            (ACLOperation, filter_.operation),
            (ACLPermissionType, filter_.permission_type),
        )
    )
    return AclFilter(
        resource_type,
        filter_.resource_name_filter,
        _word(ACLResourcePatternType, filter_.pattern_type_filter),
        filter_.principal_filter,
        operation,
        permission,
    )


def row(creation: Any) -> Acl:
    """Build the ACL that a request creates. Raises InvalidRequestError."""
    if creation.host != ANY_HOST:
        raise InvalidRequestError(
            f"host: got {creation.host!r}, expected {ANY_HOST}; eosdb's ACLs are for all hosts"
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


def of_resource(acl: Acl) -> Fields:
    """The answer's fields for the resource of an ACL."""
    return {
        "resource_type": int(ACLResourceType[acl.resource_type.upper()]),
        "resource_name": acl.resource_name,
        "pattern_type": int(ACLResourcePatternType[acl.pattern_type.upper()]),
    }


def of_principal(acl: Acl) -> Fields:
    """The answer's fields for the principal and the operation of an ACL."""
    return {
        "principal": acl.principal,
        "host": ANY_HOST,
        "operation": int(ACLOperation[acl.operation.upper()]),
        "permission_type": int(ACLPermissionType[acl.permission.upper()]),
    }


def _word(kind: type[IntEnum], code: int) -> str:
    """The name that eosdb uses for a code of the protocol. An unknown code becomes a name that a later
    check rejects."""
    return kind(code).name.lower() if code in kind._value2member_map_ else str(code)
