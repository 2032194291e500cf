"""Determines the outcome of a transaction from the journal, for producers that lost the response."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from eosdb.broker.core import Core
from eosdb.coordinator.transactions.rows import TRANSACTIONAL_IDS
from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import TransactionStateChanged
from eosdb.log import lives
from eosdb.model.clock import format_time_ms
from eosdb.model.damage import parsed, reads
from eosdb.model.validation import check_identity, check_int
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    TransactionState,
    TransactionToken,
)
from eosdb.store import baseline
from eosdb.store.schema.event_names import member

NEVER_STARTED: Final = "never started"
OPEN: Final = "open"
_DECIDED: Final = {
    TransactionState.COMPLETE_COMMIT: TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_ABORT: TransactionState.PREPARE_ABORT,
}
_DECISIONS: Final = {
    TransactionState.PREPARE_COMMIT.label: "committed",
    TransactionState.PREPARE_ABORT.label: "aborted",
}
_TRANSITIONS: Final = f"""
SELECT h.position, json_object(
    'producer_id', h.producer_id, 'producer_epoch', h.producer_epoch,
    'from_state', h.from_state, 'to_state', h.to_state,
    'last_producer_epoch', h.producer_epoch - 1,
    'transaction_version', {member(TransactionStateChanged, "transaction_version")}
)
FROM transaction_history h JOIN eosdb_journal j ON j.position = h.position
WHERE h.transactional_id = ?
"""
"""The fields that determine the outcome; the last epoch is the one that a version 2 decision has
replaced."""
_NEWEST_FIRST: Final = f"{_TRANSITIONS} AND h.position <= ? ORDER BY h.position DESC LIMIT ?"
_FROM: Final = f"{_TRANSITIONS} AND h.position >= ? ORDER BY h.position LIMIT 1"
_NEWEST: Final = (
    "SELECT position FROM eosdb_journal WHERE transactional_id = ? AND kind = 'TransactionStateChanged' "
    "ORDER BY position DESC LIMIT 1"
)
_ROWS_AT_ONCE: Final = 300
"""How many transitions are read in order before older ones are searched."""


def outcome(core: Core, token: TransactionToken) -> str:
    """Return the outcome of a transaction: `committed`, `aborted`, `open` or `never started`.

    The answer is definite as soon as the transaction is decided, from any process and after any crash. An
    `open` transaction whose producer is gone is aborted by its timeout, or when a producer initialises the
    same transactional id. `never started` means that the coordinator does not know the transaction. Raises
    InvalidRequestError for an invalid token, for a transaction older than the history
    (`history_retention_ms`), unless it was the last of its transactional id, and for an unknown life: the
    file was restored or copied before the transaction ended.
    """
    with core.store.read() as connection:
        return _read(connection, token)


# Reads the newest transitions first. For an older transaction, a bisection by producer id and epoch finds
# the place to read. Producer ids may decrease (each process takes a block of ids); then every row is read.
def _read(connection: sqlite3.Connection, token: TransactionToken) -> str:
    if not isinstance(token, TransactionToken):
        raise InvalidRequestError(
            f"token: got {token!r}, expected the token of begin_transaction()"
        )
    check_identity(token.transactional_id, token.producer_id, token.producer_epoch)
    check_int("number", token.number, 0)
    (newest,) = connection.execute(_NEWEST, (token.transactional_id,)).fetchone() or (0,)
    at, ended = baseline.read(connection), lives.end_of(connection, token.producer_id)
    # decisions/0094: of an ended life, only what was decided before its end is certain.
    until = newest if ended is None else ended
    has_before = at.position and (ended is None or at.position < ended)
    before = _at_baseline(connection, token.transactional_id) if has_before else ()

    def walked(position: int, rows: int) -> str | None:
        transitions = connection.execute(
            _NEWEST_FIRST, (token.transactional_id, min(position, until), rows)
        ).fetchall()
        is_all = not 0 < rows <= len(transitions)
        newest_first = chain(
            (parsed(detail) for _, detail in transitions), before if is_all else ()
        )
        return outcome_from(newest_first, token, complete=is_all and at.position == 0)

    found = (
        walked(newest, _ROWS_AT_ONCE)
        or walked(_first_after(connection, token, newest), _ROWS_AT_ONCE)
        or walked(newest, -1)
    )
    if ended is not None and found in (None, OPEN, NEVER_STARTED):
        raise lives.unknown(f"{token} is of a life that ended with event {ended}, and was open")
    if found is None:
        raise InvalidRequestError(
            f"the outcome of {token} is not known any more: if there was such a transaction, it began "
            f"before the history of this file, which goes back to {format_time_ms(at.timestamp)} "
            "(history.retention.ms, history.retention.bytes)"
        )
    return found


@reads("eosdb_baseline_transactional_ids")
def _at_baseline(
    connection: sqlite3.Connection, transactional_id: str
) -> tuple[Mapping[str, Any], ...]:
    """Return the baseline's state of the transactional id as transitions, newest first. It shows the end of
    the last transaction of version 2, and that no transaction has begun under the newest producer id and
    epoch."""
    row = connection.execute(TRANSACTIONAL_IDS.at_key.baseline, (transactional_id,)).fetchone()
    if row is None:
        return ()
    metadata = TRANSACTIONAL_IDS.value(row)
    pair = {"producer_id": metadata.producer_id, "producer_epoch": metadata.producer_epoch}
    is_own_epoch = metadata.transaction_version == EPOCH_PER_TRANSACTION
    if metadata.state.is_complete and is_own_epoch:
        ended = {
            "producer_id": metadata.previous_producer_id,
            "producer_epoch": metadata.last_producer_epoch + 1,
            "last_producer_epoch": metadata.last_producer_epoch,
            "transaction_version": EPOCH_PER_TRANSACTION,
            "to_state": _DECIDED[metadata.state].label,
        }
        return {**pair, "to_state": TransactionState.EMPTY.label}, ended
    version = {"last_producer_epoch": metadata.last_producer_epoch,
               "transaction_version": metadata.transaction_version}  # fmt: skip
    # The transaction's first position and number are omitted, because the baseline does not store them.
    return (
        {**pair, **version, "to_state": metadata.state.label, "from_state": metadata.state.label},
    )


@reads("journal")
def _first_after(connection: sqlite3.Connection, token: TransactionToken, newest: int) -> int:
    """Find by bisection the position of the first transition whose producer id and epoch are later than
    those of the token."""
    wanted = (token.producer_id, token.producer_epoch)
    low, high = 0, newest
    while low < high:
        middle = (low + high) // 2
        position, detail = connection.execute(_FROM, (token.transactional_id, middle)).fetchone()
        event = parsed(detail)
        if (event["producer_id"], event["producer_epoch"]) > wanted:
            high = middle
        else:
            low = position + 1
    after = connection.execute(_FROM, (token.transactional_id, low)).fetchone()
    return newest if after is None else int(after[0])


@reads("journal")
def outcome_from(
    newest_first: Iterable[Mapping[str, Any]], token: TransactionToken, *, complete: bool
) -> str | None:
    """Return the outcome according to these transitions of the transactional id; None if older transitions
    must be read. If the transitions are `complete`, there are no older ones.

    Under version 2 a decision names the producer id and epoch that it replaces. Under version 1 a
    transaction began when its producer id and epoch became Ongoing, and was decided by the next Prepare….
    If there are several such transactions, the token's number selects one. A replaced producer id never
    returns, and its epochs only rise.
    """
    decision, outcomes, is_known = OPEN, list[str](), False
    for event in newest_first:
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
            if is_own_epoch and epoch == token.producer_epoch:
                break  # This event assigned the epoch, so earlier events belong to other transactions.
        elif epoch == token.producer_epoch and _begins(event):
            outcomes.append(decision)
        elif epoch == token.producer_epoch and state == TransactionState.EMPTY.label:
            break
    else:
        if not complete:
            return None
    return outcomes[-1 - token.number] if token.number < len(outcomes) else NEVER_STARTED


def _begins(event: Mapping[str, object]) -> bool:
    ongoing = TransactionState.ONGOING.label
    return event["to_state"] == ongoing != event["from_state"]
