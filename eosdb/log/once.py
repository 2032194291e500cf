"""Deduplication beyond producers: records published under an idempotency key, and batches of sinks.

A key is unique in its topic until `idempotency.retention.ms` after its use, or after its scheduled record
is due. The newest batch number of
a sink is stored with its records. Content identifiers of its last few batches distinguish a repeat from a
sink that counts from 0 again. A sink is forgotten after the same time without a batch.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from eosdb import errors
from eosdb.events import kinds
from eosdb.events.encoding import texts_json
from eosdb.model.damage import parsed, reads
from eosdb.model.validation import check_text
from eosdb.model.values import RecordMetadata
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import STEPS_PER_UNIT, Folding, Unit

_KEYS: Final = Table(
    "eosdb_idempotency_keys", "topic idempotency_key partition offset timestamp used_time",
    "topic idempotency_key",
)  # fmt: skip
_FORGET_KEYS: Final = _KEYS.deletion("topic = ?")


def check_key(key: str) -> None:
    """Raises InvalidRequestError for an invalid key."""
    if check_text("idempotency_key", key) == "":
        raise errors.InvalidRequestError("idempotency_key: got an empty one, expected text or None")


def find_key(unit: Unit, topic: str, key: str) -> RecordMetadata | None:
    """Return partition, offset and timestamp of the record published under the key; None for a new key."""
    row = unit.execute(_KEYS.at_key, (topic, key)).fetchone()
    if row is None:
        return None
    _, _, partition, offset, timestamp, _ = row
    return RecordMetadata(topic, partition, offset, timestamp, duplicate=True)


def key_used(unit: Folding, event: kinds.IdempotencyKeyUsed, position: int) -> None:
    unit.execute(
        _KEYS.insert,
        (
            event.topic,
            event.idempotency_key,
            event.partition,
            event.offset,
            event.record_timestamp,
            # The key of a scheduled record is known until `idempotency.retention.ms` after its due time.
            max(event.timestamp, event.record_timestamp)
            if event.partition < 0
            else event.timestamp,
        ),
    )


def forget_keys(unit: Folding, topic: str) -> None:
    unit.execute(_FORGET_KEYS, (topic,))


def keys_expired(unit: Folding, event: kinds.IdempotencyKeysExpired, position: int) -> None:
    unit.executemany(_KEYS.delete, [(event.topic, key) for key in event.idempotency_keys])


OLDEST_KEY: Final = "SELECT used_time FROM eosdb_idempotency_keys ORDER BY used_time LIMIT 1"
_EXPIRED_KEYS: Final = (
    "SELECT topic, idempotency_key FROM eosdb_idempotency_keys WHERE used_time <= ? "
    f"ORDER BY used_time LIMIT {STEPS_PER_UNIT}"
)
_OLDEST_SINK: Final = "SELECT min(timestamp) FROM eosdb_sinks"
_EXPIRED_SINKS: Final = (
    f"SELECT sink_id FROM eosdb_sinks WHERE timestamp <= ? LIMIT {STEPS_PER_UNIT}"
)


def is_due(connection: sqlite3.Connection, before_ms: int) -> bool:
    """Whether a key or a sink was last used at or before that time."""
    oldest = [connection.execute(query).fetchone() for query in (OLDEST_KEY, _OLDEST_SINK)]
    return any(row is not None and row[0] is not None and row[0] <= before_ms for row in oldest)


def expire(unit: Unit, before_ms: int, now_ms: int) -> tuple[int, int]:
    """Expire some of the keys and sinks last used at or before a time. Returns how many of each."""
    by_topic: dict[str, list[str]] = {}
    for topic, key in unit.execute(_EXPIRED_KEYS, (before_ms,)).fetchall():
        by_topic.setdefault(topic, []).append(key)
    for topic, keys in by_topic.items():
        unit.record(kinds.IdempotencyKeysExpired(now_ms, topic, tuple(keys)))
    sinks = tuple([sink for (sink,) in unit.execute(_EXPIRED_SINKS, (before_ms,)).fetchall()])
    if sinks:
        unit.record(kinds.SinksExpired(now_ms, sinks))
    return sum(map(len, by_topic.values())), len(sinks)


_KEPT: Final = 100
"""The number of batches of a sink whose content identifiers are stored."""
_SINKS: Final = Table("eosdb_sinks", "sink_id batch_id timestamp", "sink_id")
_BATCHES: Final = Table("eosdb_sink_batches", "sink_id batch_id held", "sink_id batch_id")
_FORGET_BATCHES: Final = _BATCHES.deletion(
    "sink_id = ? AND batch_id <= (SELECT batch_id "
    "FROM {eosdb_sink_batches} WHERE sink_id = ? ORDER BY batch_id DESC LIMIT 1 OFFSET ?)"
)
_FORGET_SINK: Final = _SINKS.delete, _BATCHES.deletion("sink_id = ?")


class SinkBatch(NamedTuple):
    """A batch from a sink. Each text in `held` identifies its content; empty if the sink gives none.
    `consecutive` batch numbers have no gaps."""

    sink_id: str
    batch_id: int
    held: tuple[str, ...]
    consecutive: bool = False


@reads("eosdb_sink_batches")
def has_batch(source: Unit | sqlite3.Connection, this: SinkBatch) -> bool:
    """Whether the log has the batch. Raises BatchDiffersError for another batch with its number, and
    OutOfOrderSequenceNumberError if batches before it are missing."""
    row = source.execute(
        "SELECT s.batch_id, b.held FROM eosdb_sinks s LEFT JOIN eosdb_sink_batches b "
        "ON b.sink_id = s.sink_id AND b.batch_id = ? WHERE s.sink_id = ?",
        (this.batch_id, this.sink_id),
    ).fetchone()
    if row is None:
        return False
    newest, held = row
    return repeats(this, newest, None if held is None else frozenset(parsed(held)))


def repeats(this: SinkBatch, newest: int, held: frozenset[str] | None) -> bool:
    """Whether the sink repeats a batch. `newest` is its newest batch number, `held` the stored
    identifiers for the same number (None if unknown). Raises BatchDiffersError and
    OutOfOrderSequenceNumberError."""
    assert this.batch_id >= 0, this
    if this.batch_id > newest:
        if this.consecutive and this.batch_id > newest + 1:
            raise errors.OutOfOrderSequenceNumberError(
                f"sink {this.sink_id!r}, batch {this.batch_id}: the sink's newest batch is {newest}, so "
                f"{this.batch_id - newest - 1} before this one are missing; expected {newest + 1}. "
                "The file may be an older copy; nothing was appended"
            )
        return False
    if not this.held or (held is None and this.batch_id == newest):
        return True
    if held is not None and not held.isdisjoint(this.held):
        return True
    described = (
        "it is not known what its batch of that number held, if there was one"
        if held is None
        else "its batch of that number held something else"
    )
    raise errors.BatchDiffersError(
        f"sink {this.sink_id!r}, batch {this.batch_id}: the sink's newest batch is {newest}, "
        f"and {described}; nothing was appended. A sink that counts from 0 again "
        "needs a new id, and two that write at the same time need different ids",
        newest,
        held or frozenset(),
    )


def sink_batch_appended(unit: Folding, event: kinds.SinkBatchAppended, position: int) -> None:
    unit.execute(_SINKS.replace, (event.sink_id, event.batch_id, event.timestamp))
    if event.held:
        unit.execute(_BATCHES.insert, (event.sink_id, event.batch_id, texts_json(event.held)))
        unit.execute(_FORGET_BATCHES, (event.sink_id, event.sink_id, _KEPT))


def sinks_expired(unit: Folding, event: kinds.SinksExpired, position: int) -> None:
    for statement in _FORGET_SINK:
        unit.executemany(statement, [(sink_id,) for sink_id in event.sink_ids])
