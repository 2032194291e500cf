"""What became of one transaction, read from the journal: the definite answer after a lost one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.model import TransactionState, TransactionToken

NEVER_STARTED: Final = "never started"
OPEN: Final = "open"
_DECISIONS: Final = {
    TransactionState.PREPARE_COMMIT.label: "committed",
    TransactionState.PREPARE_ABORT.label: "aborted",
}
_TRANSITIONS: Final = (
    "SELECT detail FROM journal WHERE transactional_id = ? AND kind = 'TransactionStateChanged' "
    "ORDER BY position DESC"
)


def read(connection: sqlite3.Connection, token: TransactionToken) -> str:
    """`committed`, `aborted`, `open` or `never started`. Raises InvalidRequestError."""
    if not isinstance(token, TransactionToken):
        raise InvalidRequestError(
            f"token: got {token!r}, expected what begin_transaction() returned"
        )
    rows = connection.execute(_TRANSITIONS, (token.transactional_id,))
    return told_by((detail for (detail,) in rows), token)


def told_by(newest_first: Iterable[str], token: TransactionToken) -> str:
    """The outcome that the transitions of the transactional id tell.

    A transaction has begun when its producer id and epoch became Ongoing, and was decided by the first
    Prepare… after that. Epochs of a producer id only rise, so an older one ends the search.
    """
    decision = OPEN
    for detail in newest_first:
        event = json.loads(detail)
        state, epoch = event["to_state"], event["producer_epoch"]
        if state in _DECISIONS:
            decision = _DECISIONS[state]
        elif event["producer_id"] == token.producer_id:
            if state == TransactionState.ONGOING.label and epoch == token.producer_epoch:
                return decision
            if epoch < token.producer_epoch:
                return NEVER_STARTED
    return NEVER_STARTED
