"""The rows of `records`: their columns, and the statements that insert them."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from eosdb.events.kinds import BatchAppended
from eosdb.log import checksum
from eosdb.log.batch import PreparedBatch
from eosdb.log.producer_state import SEQUENCE_COUNT
from eosdb.model.values import NO_SEQUENCE
from eosdb.native import accelerator
from eosdb.store.writing.insertion import Insertion
from eosdb.store.writing.unit import Unit


class _Numbers(NamedTuple):
    """The numeric columns of a row that its batch determines."""

    partition_id: int
    offset: int
    timestamp: int
    timestamp_type: int
    producer_id: int
    is_transactional: int
    producer_epoch: int
    sequence: int
    sequence_round: int
    position: int


_CONTENT: Final = ("control", "key", "value", "headers", "checksum")
"""The other columns of a row; the last is the sum of its content."""
_STORED: Final = (
    "partition_id", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "producer_id",
    "producer_epoch", "sequence", "sequence_round", "is_transactional", "control", "position", "checksum",
)  # fmt: skip
"""The columns in the order of the table. SQLite copies each value once more if an INSERT has another."""


def _inserting(terms: dict[str, str]) -> str:
    """SQL: insert rows of the columns with these names, or of these terms in their place."""
    names = {name: f'"{name}"' for name in _STORED}
    values = ",".join((names | terms).values())
    return f"INSERT INTO records ({','.join(names.values())}) SELECT {values} FROM "


def _insert_sql(rows: int) -> str:
    terms = {name: f'"{name}"' for name in _Numbers._fields + _CONTENT}
    # decisions/0059: `?` has no number, so an inner SELECT names each value that is used twice.
    named = ",".join(f"column{place} AS {name}" for place, name in enumerate(terms.values(), 1))
    values = ",".join([f"({','.join('?' * len(terms))})"] * rows)
    return (
        _inserting({"checksum": checksum.stored(terms)})
        + f"(SELECT {named} FROM (VALUES {values}) AS given)"
    )


RECORD: Final = Insertion("records", _insert_sql)
_FEW: Final = 8
"""Batches of up to this many records share statements with others."""


def insert_records(
    unit: Unit,
    event: BatchAppended,
    position: int,
    batch: PreparedBatch,
    timestamps: list[int],
    timestamp_type: int,
) -> None:
    """Insert the rows of a batch, whose event is recorded."""
    sequenced = event.base_sequence >= 0

    def numbers(at: int, timestamp: int) -> tuple[int, ...]:
        serial = event.base_sequence + at
        round_, sequence = divmod(serial, SEQUENCE_COUNT) if sequenced else (0, NO_SEQUENCE)
        return (
            event.partition_id, event.base_offset + at, timestamp, timestamp_type, event.producer_id,
            int(event.is_transactional), event.producer_epoch, sequence, round_, position,
        )  # fmt: skip

    if batch.count == 1:
        text = batch.headers[0] if batch.headers else None
        first = numbers(0, timestamps[0])
        unit.insert(RECORD, (*first, None, *batch.payload, text, *batch.content_sums))
        return
    is_large = batch.count > _FEW
    if is_large and _inserted_at_once(
        unit, batch, timestamps, _Numbers(*numbers(0, timestamps[0]))
    ):
        return
    times = timestamps if len(timestamps) > 1 else timestamps * batch.count
    payload, headers = iter(batch.payload), batch.headers or [None] * batch.count
    contents = zip(times, payload, payload, headers, batch.content_sums, strict=True)
    rows = [(*numbers(i, time), None, *rest) for i, (time, *rest) in enumerate(contents)]
    unit.insert(RECORD, *rows)
    if is_large:
        unit.write_waiting()


_ONCE: Final = (
    "partition_id", "timestamp_type", "producer_id", "producer_epoch", "sequence_round",
    "is_transactional", "position",
)  # fmt: skip
_AT_ONCE: Final = _inserting(dict.fromkeys(_ONCE, "?") | {"control": "NULL"}) + "eosdb_batch"


def _inserted_at_once(
    unit: Unit, batch: PreparedBatch, timestamps: list[int], first: _Numbers
) -> bool:
    """Insert the batch's rows by one statement of the accelerator. Returns False, without a write, if it
    cannot."""
    module = accelerator.rows()
    if module is None or first.sequence + batch.count > SEQUENCE_COUNT:
        return False
    once = [getattr(first, name) for name in _ONCE]
    columns = (batch.payload, batch.headers, timestamps, batch.content_sums)
    try:
        module.inserted(lambda: unit.execute(_AT_ONCE, once), *columns, first)
    except (sqlite3.IntegrityError, ValueError, OverflowError):
        # decisions/0060: SQLite has undone the statement; Python code then finds and reports the fault.
        return False
    return True
