"""DeleteAcls: deletes the ACLs that a request's filters match, in one commit.

Version 1: prefixed patterns (KIP-290); 2: flexible; 3: users as resources (KIP-373), which eosdb does not
have.
"""

from __future__ import annotations

from kafka.protocol.admin.acl import DeleteAclsRequest

from eosdb.admin.access import AclFilter
from eosdb.errors import EosdbError
from eosdb.events.kinds import Acl
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k29_describe_acls import of_principal, of_resource, wanted


@serves(DeleteAclsRequest, 1, 3)
def delete_acls(session: Session, request: DeleteAclsRequest, _: int) -> Fields:
    """An ACL that several filters match is in the result of each."""
    filters, errors = dict[int, AclFilter | None](), dict[int, EosdbError]()
    for index, requested in enumerate(request.filters):
        try:
            filters[index] = wanted(requested)
        except EosdbError as error:
            errors[index] = error
    indexes, removed = range(len(request.filters)), list[Acl]()
    given = [filter_ for filter_ in filters.values() if filter_ is not None]
    try:
        removed = session.admin.delete_acls(lambda acl: any(f.matches(acl) for f in given))
    except EosdbError as error:
        errors = dict.fromkeys(indexes, error) | errors

    def matching(filter_: AclFilter | None) -> list[Fields]:
        return [
            {**of_resource(acl), **of_principal(acl)}
            for acl in removed
            if filter_ is not None and filter_.matches(acl)
        ]

    return {
        "filter_results": [
            {"error": errors.get(index), "matching_acls": matching(filters.get(index))}
            for index in indexes
        ]
    }
