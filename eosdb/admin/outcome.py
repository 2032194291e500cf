"""The outcome of one transaction, read from the journal: the definite answer after a lost response."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.model.damage import reads
from eosdb.model.values import EPOCH_PER_TRANSACTION, TransactionState, TransactionToken
from eosdb.validation import check_identity, check_int

NEVER_STARTED: Final = "never started"
OPEN: Final = "open"
_DECISIONS: Final = {
    TransactionState.PREPARE_COMMIT.label: "committed",
    TransactionState.PREPARE_ABORT.label: "aborted",
}
_OF_THE_ID: Final = "transactional_id = ? AND kind = 'TransactionStateChanged'"
_NEWEST_FIRST: Final = (
    f"SELECT detail FROM journal WHERE {_OF_THE_ID} AND position <= ? "
    "ORDER BY position DESC LIMIT ?"
)
_FROM: Final = (
    f"SELECT position, detail FROM journal WHERE {_OF_THE_ID} AND position >= ? "
    "ORDER BY position LIMIT 1"
)
_NEWEST: Final = f"SELECT position FROM journal WHERE {_OF_THE_ID} ORDER BY position DESC LIMIT 1"
_ROWS_AT_ONCE: Final = 300
"""How many transitions are walked before older ones are searched."""


def read(connection: sqlite3.Connection, token: TransactionToken) -> str:
    """`committed`, `aborted`, `open` or `never started`. Raises InvalidRequestError.

    The newest transitions are walked; an older transaction is searched for by producer id and epoch,
    which usually rise. Where they have not risen (ids come in blocks, one per process), every transition
    is walked.
    """
    if not isinstance(token, TransactionToken):
        raise InvalidRequestError(
            f"token: got {token!r}, expected what begin_transaction() returned"
        )
    check_identity(token.transactional_id, token.producer_id, token.producer_epoch)
    check_int("number", token.number, 0)
    newest = connection.execute(_NEWEST, (token.transactional_id,)).fetchone()
    if newest is None:
        return NEVER_STARTED

    def walked(position: int, rows: int) -> str | None:
        found = connection.execute(
            _NEWEST_FIRST, (token.transactional_id, position, rows)
        ).fetchall()
        return outcome_from(
            (detail for (detail,) in found), token, complete=not 0 < rows <= len(found)
        )

    return (
        walked(newest[0], _ROWS_AT_ONCE)
        or walked(_first_after(connection, token, newest[0]), _ROWS_AT_ONCE)
        or walked(newest[0], -1)
        or NEVER_STARTED
    )


@reads("journal")
def _first_after(connection: sqlite3.Connection, token: TransactionToken, newest: int) -> int:
    """The position of the first transition under a later pair than the token's, by bisection."""
    wanted = (token.producer_id, token.producer_epoch)
    low, high = 0, newest
    while low < high:
        middle = (low + high) // 2
        position, detail = connection.execute(_FROM, (token.transactional_id, middle)).fetchone()
        event = json.loads(detail)
        if (event["producer_id"], event["producer_epoch"]) > wanted:
            high = middle
        else:
            low = position + 1
    after = connection.execute(_FROM, (token.transactional_id, low)).fetchone()
    return newest if after is None else int(after[0])


@reads("journal")
def outcome_from(
    newest_first: Iterable[str], token: TransactionToken, *, complete: bool
) -> str | None:
    """The outcome according to these transitions of the transactional id. None: older ones must be read;
    there are none if these are `complete`.

    Under version 2 a decision names the pair it replaces. Otherwise a transaction began when its pair
    became Ongoing, and was decided by the first Prepare… after that; of several, the token's number says
    which. A producer id that has been replaced never returns, and its epochs only rise.
    """
    decision, outcomes, is_known = OPEN, list[str](), False
    for detail in newest_first:
        event = json.loads(detail)
        epoch = event["producer_epoch"]
        if event["producer_id"] != token.producer_id:
            if is_known:
                break
            continue
        if epoch < token.producer_epoch:
            break
        is_known = True
        state = event["to_state"]
        if state in _DECISIONS:
            decision = _DECISIONS[state]
            is_own_epoch = event.get("transaction_version") == EPOCH_PER_TRANSACTION
            if is_own_epoch and event["last_producer_epoch"] == token.producer_epoch:
                return decision
        elif epoch == token.producer_epoch and _begins(event):
            outcomes.append(decision)
    else:
        if not complete:
            return None
    return outcomes[-1 - token.number] if token.number < len(outcomes) else NEVER_STARTED


def _begins(event: Mapping[str, object]) -> bool:
    ongoing = TransactionState.ONGOING.label
    return event["to_state"] == ongoing != event["from_state"]
