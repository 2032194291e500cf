"""DescribeUserScramCredentials: the mechanisms and iterations of all users, or of the requested ones
(KIP-554).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka.protocol.admin.users import DescribeUserScramCredentialsRequest

from eosdb.admin.tools import Tools
from eosdb.errors import ResourceNotFoundError
from eosdb.model.protocol import scram
from eosdb.model.validation import shown
from eosdb.wire.apis import Fields, Session, serves
from eosdb.wire.errors import DUPLICATE_RESOURCE

NUMBERS: Final = {name: number for number, name in enumerate(scram.MECHANISMS, start=1)}


@serves(DescribeUserScramCredentialsRequest, 0, 0)
def describe(session: Session, request: DescribeUserScramCredentialsRequest, _: int) -> Fields:
    by_user: dict[str, list[Fields]] = {}
    for one in Tools(session.admin).list_credentials():
        info = {"mechanism": NUMBERS[one.mechanism], "iterations": one.iterations}
        by_user.setdefault(one.user, []).append(info)
    requested = Counter([user.name for user in request.users] if request.users else list(by_user))

    def described(user: str, times: int) -> Fields:
        if times > 1:
            return twice(f"the request names {shown(user)} more than once")
        if user not in by_user:
            return {"error": ResourceNotFoundError(f"no password is stored for {shown(user)}")}
        return {"credential_infos": by_user[user]}

    return {"results": [{"user": user, **described(user, n)} for user, n in requested.items()]}


def twice(why: str) -> Fields:
    return {"error_code": DUPLICATE_RESOURCE, "error_message": why}
