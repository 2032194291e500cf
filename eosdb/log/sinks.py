"""What each exactly-once sink has brought in: the newest batch, remembered with its records."""

from __future__ import annotations

import sqlite3

from eosdb.events import SinkBatchAppended
from eosdb.store.unit import Unit


def newest_batch(source: Unit | sqlite3.Connection, sink_id: str) -> int | None:
    """The number of the newest batch that is in the log."""
    row = source.execute(
        "SELECT batch_id FROM eosdb_sinks WHERE sink_id = ?", (sink_id,)
    ).fetchone()
    return None if row is None else int(row[0])


def sink_batch_appended(unit: Unit, event: SinkBatchAppended, position: int) -> None:
    """Projection: the batch is remembered."""
    unit.execute(
        "INSERT OR REPLACE INTO eosdb_sinks (sink_id, batch_id, timestamp) VALUES (?, ?, ?)",
        (event.sink_id, event.batch_id, event.timestamp),
    )
