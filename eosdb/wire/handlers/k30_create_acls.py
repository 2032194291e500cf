"""CreateAcls: the valid ACLs of a request are created in one commit.

Version 1: prefixed patterns (KIP-290); 2: flexible; 3: users as resources (KIP-373), which eosdb does not
have.
"""

from __future__ import annotations

from kafka.protocol.admin.acl import CreateAclsRequest

from eosdb.errors import EosdbError
from eosdb.events.kinds import Acl
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.handlers.k29_describe_acls import row


@serves(CreateAclsRequest, 1, 3)
def create_acls(session: Session, request: CreateAclsRequest, _: int) -> Fields:
    rows, errors = list[Acl](), dict[int, EosdbError]()
    for index, creation in enumerate(request.creations):
        try:
            rows.append(row(creation))
        except EosdbError as error:
            errors[index] = error
    indexes = range(len(request.creations))
    try:
        session.admin.create_acls(rows)
    except EosdbError as error:
        errors = dict.fromkeys(indexes, error) | errors
    return {"results": [{"error": errors.get(index)} for index in indexes]}
