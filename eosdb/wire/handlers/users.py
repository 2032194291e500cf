"""User administration: DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from eosdb.errors import EosdbError, ResourceNotFoundError
from eosdb.model.protocol import scram
from eosdb.model.validation import shown
from eosdb.wire.errors import DUPLICATE_RESOURCE, NONE, code_of, message_of
from eosdb.wire.session import Session

_NUMBERS: Final = {name: number for number, name in enumerate(scram.MECHANISMS, start=1)}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def describe(
    session: Session, request: DescribeUserScramCredentialsRequest, version: int
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of all users, or of the requested ones."""
    try:
        credentials = session.admin.list_credentials()
    except EosdbError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=code_of(error), error_message=message_of(error), results=[]
        )
    by_user: dict[str, list[_Described.CredentialInfo]] = {}
    for c in credentials:
        by_user.setdefault(c.user, []).append(
            _Described.CredentialInfo(mechanism=_NUMBERS[c.mechanism], iterations=c.iterations)
        )
    requested = Counter([user.name for user in request.users] if request.users else list(by_user))
    return DescribeUserScramCredentialsResponse(
        error_code=NONE,
        error_message=None,
        results=[_described(user, times, by_user.get(user)) for user, times in requested.items()],
    )


def alter(
    session: Session, request: AlterUserScramCredentialsRequest, version: int
) -> AlterUserScramCredentialsResponse:
    """Alter users, with a result for each; a user's changes are made in order, up to the first that
    fails."""
    changes: dict[str, list[Any]] = {}
    for change in (*request.deletions, *request.upsertions):
        changes.setdefault(change.name, []).append(change)
    results = [_altered(session, user, user_changes) for user, user_changes in changes.items()]
    return AlterUserScramCredentialsResponse(results=results)


def _described(user: str, times: int, infos: list[_Described.CredentialInfo] | None) -> _Described:
    code, message = NONE, None
    if times > 1:
        code, message = DUPLICATE_RESOURCE, f"the request names {shown(user)} more than once"
    elif infos is None:
        code, message = ResourceNotFoundError.code, f"no password is stored for {shown(user)}"
    return _Described(
        user=user,
        error_code=code,
        error_message=message,
        credential_infos=[] if code else infos or [],
    )


def _altered(session: Session, user: str, changes: list[Any]) -> _Altered:
    code, message = NONE, None
    if max(Counter(change.mechanism for change in changes).values()) > 1:
        code, message = DUPLICATE_RESOURCE, f"{shown(user)} is changed twice for one mechanism"
    else:
        try:
            for change in changes:
                _apply(session, change)
        except EosdbError as error:
            code, message = code_of(error), message_of(error)
    return _Altered(user=user, error_code=code, error_message=message)


def _apply(session: Session, change: Any) -> None:
    mechanism = _NAMES.get(change.mechanism, str(change.mechanism))
    if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        session.admin.remove_user(change.name, mechanism)
        return
    valid = mechanism if mechanism in scram.MECHANISMS else next(iter(scram.MECHANISMS))
    credential = scram.credential(
        change.name,
        valid,
        change.iterations,
        bytes(change.salt),
        bytes(change.salted_password),
    )
    session.admin.put_credential(credential._replace(mechanism=mechanism))
