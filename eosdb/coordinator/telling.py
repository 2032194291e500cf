"""What the coordinator says when it has acted by itself, once that is committed."""

from __future__ import annotations

from collections.abc import Iterable

from eosdb.coordinator.groups.rows import Removed
from eosdb.coordinator.transactions import owned
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.notices import catalog

_WHY = {
    "session_ended": "its session has ended",
    "process_died": "its process has died",
    "did_not_rejoin": "it has not joined again in time",
}


def aborted(lost: TransactionMetadata, now_ms: int) -> None:
    """This transaction, as it was, has been fenced and aborted."""
    open_ms = max(now_ms - lost.start_time_ms, 0)  # The clock may have gone back.
    is_orphan = owned.has_owner(lost.transactional_id) and open_ms <= lost.timeout_ms
    notice = catalog.OWNER_DIED if is_orphan else catalog.TRANSACTION_TIMED_OUT
    why = "its process has died" if is_orphan else f"its time-out is {lost.timeout_ms} ms"
    notice.say(
        "transactional id %s: the transaction of producer %d, epoch %d, is aborted: it was open for %d ms, "
        "and %s",
        lost.transactional_id,
        lost.producer_id,
        lost.producer_epoch,
        open_ms,
        why,
        transactional_id=lost.transactional_id,
        producer_id=lost.producer_id,
        producer_epoch=lost.producer_epoch,
        open_ms=open_ms,
    )


def taken_over(prepared: TransactionMetadata) -> None:
    """A producer has asked for an id under which a transaction was open; this is its abort."""
    catalog.TRANSACTION_TAKEN_OVER.say(
        "transactional id %s: taken by a new producer; the transaction that an earlier one had open is "
        "aborted, and that producer (%d) fenced",
        prepared.transactional_id,
        prepared.producer_id,
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
    )


def recovered(path: str, completed: int) -> None:
    """So many transactions that others had decided are complete."""
    if completed:
        catalog.RECOVERED.say(
            "%s: completed %d transactions that a process had decided and left, as one that was killed "
            "does",
            path,
            completed,
            file=path,
            transactions=completed,
        )


def members_removed(gone: Iterable[Removed]) -> None:
    """These members are out of their groups."""
    for group_id, member_id, reason in gone:
        catalog.MEMBER_REMOVED.say(
            "group %s: member %s is out: %s",
            group_id,
            member_id,
            _WHY[reason],
            group_id=group_id,
            member_id=member_id,
            reason=reason,
        )
