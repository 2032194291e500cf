"""JoinGroup: a member of the classic protocol joins; the answer waits until the generation is complete.

Version 1: a separate rebalance time-out; 4: a new member gets an id before it joins (KIP-394); 5: static
members (KIP-345); 6: flexible; 7: the protocol type, and null for no protocol (KIP-559); 8: a reason
(KIP-800); 9: a flag tells the leader to keep the assignment (KIP-814).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kafka.protocol.consumer.group import JoinGroupRequest

from eosdb.broker.broker import Broker
from eosdb.errors import EosdbError, MemberIdRequiredError
from eosdb.model import requests
from eosdb.model.values import JoinGroupResult, SyncGroupResult
from eosdb.wire.apis import Fields, Session, asked, serves
from eosdb.wire.errors import coordinator_code_of

_LONGEST_WAIT_MS: Final = 60_000
"""A waiting request calls the broker at least this often (ms)."""


A = TypeVar("A", JoinGroupResult, SyncGroupResult)


class _ClosingError(EosdbError):
    """The server closes while the request waits; the client should look for the coordinator again."""


def _not_joined(request: JoinGroupRequest, error: EosdbError, version: int) -> Fields:
    return {
        "error": error,
        "protocol_name": None if version >= 7 else "",
        "member_id": error.member_id
        if isinstance(error, MemberIdRequiredError)
        else request.member_id,
    }


@serves(JoinGroupRequest, 0, 9, coordinator_code_of, failed=_not_joined)
def join_group(session: Session, request: JoinGroupRequest, version: int) -> Fields:
    member_id = request.member_id
    timeout_ms = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms

    def join() -> JoinGroupResult:
        nonlocal member_id
        joined = session.broker.ask(
            asked(
                requests.JoinGroup,
                request,
                member_id=member_id,
                client_id=session.client_id,
                protocols=[(p.name, bytes(p.metadata)) for p in request.protocols],
                rebalance_timeout_ms=max(timeout_ms, 1),
                client_host=f"/{session.client_host}",
                must_know_id=version >= 4,
                waits=True,
            )
        )
        member_id = joined.member_id
        return joined

    joined = when_complete(
        session, join, lambda broker: broker.ask(requests.IsWaiting(request.group_id, member_id))
    )
    # Only version 9 can tell a leader to keep the assignment; before, the response names no leader.
    follows = joined.skip_assignment and version < 9
    return {
        "like": joined,
        "leader": (not follows and joined.leader) or "",
        "members": [{"like": member} for member in (() if follows else joined.members)],
    }


def when_complete(
    session: Session, ask: Callable[[], A], is_waiting: Callable[[Broker], bool]
) -> A:
    """Ask the broker until the result is complete: at once, and each time the request is woken."""

    def has_changed(broker: Broker) -> bool:
        try:
            return not is_waiting(broker)
        except EosdbError:
            return True  # The next call of `ask` raises the error.

    while not (answer := ask()).is_complete:
        session.parking.wait(has_changed, _LONGEST_WAIT_MS, session.client)
        if session.parking.is_closed:
            raise _ClosingError("the server is being closed")
    return answer
