"""Events as whoever folds them knows them, with what their rows leave out; and files whose events say
everything, as a reader must also accept them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from eosdb.coordinator.projection import apply
from eosdb.events.encoding import Lean, encode, partitions_json
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten, TransactionStateChanged
from eosdb.maintenance import replay
from eosdb.store.schema.row_checksum import row_checksum


def whole_events(path: Path) -> dict[int, Event]:
    found: dict[int, Event] = {}

    def note(position: int, event: Event | Lean) -> None:
        assert not isinstance(event, Lean)
        found[position] = event

    with closing(sqlite3.connect(path)) as connection:
        _, problems = replay.verify(connection, apply, note)
    assert not problems
    return found


def say_everything(path: Path, until: int) -> None:
    """Rewrite the events up to a position as whole rows."""
    events = whole_events(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'journal'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for position, event in events.items():
            if position <= until:
                row = encode(event)
                connection.execute(
                    "UPDATE journal SET topic = ?, partition = ?, detail = ?, checksum = ? "
                    "WHERE position = ?",
                    (row[2], row[3], row[5], row_checksum(position, *row), position),
                )
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("COMMIT")


def check_views(path: Path, events: Mapping[int, Event] | None = None) -> None:
    """The views show of each event what it says as a whole; of these, where some have been deleted."""
    if events is None:
        events = whole_events(path)
    with closing(sqlite3.connect(path)) as connection:
        kept = {position for (position,) in connection.execute("SELECT position FROM journal")}
        history = connection.execute(
            "SELECT * FROM transaction_history ORDER BY position"
        ).fetchall()
        batches = connection.execute("SELECT * FROM record_batches ORDER BY position").fetchall()
    assert history == [
        _transition(position, event)
        for position, event in events.items()
        if position in kept and isinstance(event, TransactionStateChanged)
    ]
    assert batches == [
        _batch(position, event)
        for position, event in events.items()
        if position in kept and isinstance(event, BatchAppended | MarkerWritten)
    ]


def _transition(position: int, event: TransactionStateChanged) -> tuple[Any, ...]:
    return (
        position, event.transactional_id, event.producer_id, event.producer_epoch,
        None if event.from_state is None else event.from_state.label, event.to_state.label,
        event.timestamp, partitions_json(event.partitions),
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


def details(path: Path, *kinds: str) -> list[tuple[str | None, int | None, dict[str, Any]]]:
    """Topic, partition and detail of the journal's rows of these kinds."""
    marks = ", ".join("?" * len(kinds))
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            f"SELECT topic, partition, detail FROM journal WHERE kind IN ({marks}) ORDER BY position",
            kinds,
        ).fetchall()
    return [(topic, partition, json.loads(detail)) for topic, partition, detail in rows]
