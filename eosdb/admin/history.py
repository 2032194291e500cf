"""Tells the events of a transactional id in sentences, for the command line and `eosdb ui`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from eosdb.model.damage import parsed, reads
from eosdb.model.reports import JournalEntry

_TRANSITIONS: Final = """
SELECT position, from_state, to_state, producer_id, producer_epoch, partitions
FROM transaction_history WHERE transactional_id = ?
"""
Query = Callable[[str, tuple[object, ...]], Iterable[Any]]


@reads("journal")
def told(
    query: Query, transactional_id: str, entries: Iterable[JournalEntry]
) -> list[tuple[JournalEntry, str]]:
    """Pair each event of the transactional id with a sentence about it."""
    transitions = dict(_transitions(query(_TRANSITIONS, (transactional_id,))))
    return [(entry, _sentence(entry, transitions)) for entry in entries]


def _transitions(rows: Iterable[Any]) -> Iterator[tuple[int, str]]:
    for position, from_state, to_state, producer_id, producer_epoch, partitions in rows:
        tps = ", ".join(f"{tp['topic']}/{tp['partition']}" for tp in parsed(partitions))
        yield (
            position,
            f"{from_state or 'new'} -> {to_state}, producer {producer_id} epoch {producer_epoch}"
            + (f", {tps}" if tps else ""),
        )


def _sentence(entry: JournalEntry, transitions: dict[int, str]) -> str:
    detail = parsed(entry.detail)
    where = f"{entry.topic}/{entry.partition}"
    match entry.kind:
        case "TransactionStateChanged":
            groups = f", groups {', '.join(detail['groups'])}" if detail.get("groups") else ""
            return transitions.get(entry.position, entry.detail) + groups
        case "BatchAppended":
            first = detail["base_offset"]
            return f"{where} offsets {first} to {first + detail.get('count', 1) - 1}"
        case "MarkerWritten":
            return f"{where} offset {detail['offset']} {detail.get('control', 'COMMIT')}"
        case "TxnOffsetsCommitted":
            offsets = (f"{o['topic']}/{o['partition']} at {o['offset']}" for o in detail["offsets"])
            return f"group {detail['group_id']}: {', '.join(offsets)}"
    return entry.detail
