"""AlterUserScramCredentials: alters users' credentials, with a result for each user (KIP-554).

A user's changes are made in order, up to the first that fails.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kafka.protocol.admin.users import AlterUserScramCredentialsRequest

from eosdb.admin.tools import Tools
from eosdb.model.protocol import scram
from eosdb.model.validation import shown
from eosdb.wire.apis import Fields, Session, attempt, serves
from eosdb.wire.handlers.k50_describe_user_scram_credentials import NUMBERS, twice

_NAMES: Final = {number: name for name, number in NUMBERS.items()}


@serves(AlterUserScramCredentialsRequest, 0, 0)
def alter(session: Session, request: AlterUserScramCredentialsRequest, _: int) -> Fields:
    changes: dict[str, list[Any]] = {}
    for change in (*request.deletions, *request.upsertions):
        changes.setdefault(change.name, []).append(change)

    def altered(user: str) -> Fields | None:
        if max(Counter(change.mechanism for change in changes[user]).values()) > 1:
            return twice(f"{shown(user)} is changed twice for one mechanism")
        for change in changes[user]:
            _apply(session, change)
        return None

    return {"results": [{"user": user, **attempt(altered, user)} for user in changes]}


def _apply(session: Session, change: Any) -> None:
    mechanism = _NAMES.get(change.mechanism, str(change.mechanism))
    if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        session.admin.remove_user(change.name, mechanism)
        return
    valid = mechanism if mechanism in scram.MECHANISMS else next(iter(scram.MECHANISMS))
    salt, salted = bytes(change.salt), bytes(change.salted_password)
    credential = scram.credential(change.name, valid, change.iterations, salt, salted)
    Tools(session.admin).put_credential(credential._replace(mechanism=mechanism))
