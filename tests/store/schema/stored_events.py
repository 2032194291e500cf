"""The events of a file, and what its views must show of them."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from eosdb.events.encoding import SHAPES
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten, TransactionStateChanged
from eosdb.model.protocol.members import MemberState, by_topic
from eosdb.model.values import TransactionState
from eosdb.store import journal


def events_of(path: Path) -> dict[int, Event]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(journal.events(connection))


def named(value: Any) -> Any:
    """A value of an event as the view `journal` shows it."""
    if isinstance(value, TransactionState):
        return value.label
    if hasattr(value, "_asdict"):
        return {name: named(part) for name, part in value._asdict().items()}
    if isinstance(value, frozenset):
        return [[topic, partitions] for topic, partitions in by_topic(value)]
    if isinstance(value, MemberState):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return [*map(named, value)] if isinstance(value, tuple) else value


def details(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """What the view `journal` shows of the events of these kinds."""
    marks = ", ".join("?" * len(kinds))
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            f"SELECT detail FROM journal WHERE kind IN ({marks}) ORDER BY position", kinds
        ).fetchall()
    return [json.loads(detail) for (detail,) in rows]


def check_views(path: Path, events: Mapping[int, Event]) -> None:
    """Each view shows what the events say; of these some may have been deleted."""
    with closing(sqlite3.connect(path)) as connection:
        shown = connection.execute(
            "SELECT position, detail FROM journal ORDER BY position"
        ).fetchall()
        history = connection.execute(
            "SELECT * FROM transaction_history ORDER BY position"
        ).fetchall()
        batches = connection.execute("SELECT * FROM record_batches ORDER BY position").fetchall()
    kept = {position: events[position] for position, _ in shown}
    assert [(position, json.loads(detail)) for position, detail in shown] == [
        (position, _detail(event)) for position, event in kept.items()
    ]
    assert [(*row[:-1], json.loads(row[-1])) for row in history] == [
        _transition(position, event)
        for position, event in kept.items()
        if isinstance(event, TransactionStateChanged)
    ]
    assert batches == [
        _batch(position, event)
        for position, event in kept.items()
        if isinstance(event, BatchAppended | MarkerWritten)
    ]


def _detail(event: Event) -> dict[str, Any]:
    shown = named(event)
    return {name: shown[name] for name in SHAPES[type(event).__name__][0].names}


def _transition(position: int, event: TransactionStateChanged) -> tuple[Any, ...]:
    return (
        position, event.transactional_id, event.producer_id, event.producer_epoch,
        named(event.from_state), named(event.to_state), event.timestamp, named(event.partitions),
    )  # fmt: skip


def _batch(position: int, event: BatchAppended | MarkerWritten) -> tuple[Any, ...]:
    where = (position, event.timestamp, event.topic, event.partition)
    who = (event.producer_id, event.producer_epoch)
    if isinstance(event, MarkerWritten):
        return (
            *where, event.offset, 1, *who, -1, event.transactional_id, 1, event.control,
            event.timestamp, 0,
        )  # fmt: skip
    return (
        *where, event.base_offset, event.count, *who, event.base_sequence, event.transactional_id,
        int(event.is_transactional), None, event.max_timestamp, event.size,
    )  # fmt: skip
