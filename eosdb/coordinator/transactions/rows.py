"""The rows of transactional ids, and the steps that change them inside a unit.

This module loads a transaction, records what `decisions` (pure) decides, and writes its
markers. A transaction ends in two steps: the first records the decision (Prepare…), the second writes all
markers and Complete…. If the markers are few, both steps share a unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from eosdb import errors
from eosdb.coordinator.due import Due
from eosdb.coordinator.transactions.decisions import (
    add_to_transaction,
    complete,
    prolong,
    verify,
)
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.events import kinds
from eosdb.events.encoding import partitions_json, texts_json
from eosdb.log import append, partition_rows
from eosdb.model.damage import parsed
from eosdb.model.protocol.consumer_protocol import OWNED_BY, SINK, has_owner, owner_lock
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    ONGOING,
    PREPARE_COMMIT,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionState,
)
from eosdb.store.counters import counter
from eosdb.store.writing.table import TableOf
from eosdb.store.writing.unit import APPENDS, STEPS_PER_UNIT, Folding, Memo, Unit


@lru_cache(16)  # Each transaction calls this four times, often with equal values.
def in_order(joined: frozenset[Any]) -> tuple[Any, ...]:
    """The partitions or groups in the order in which events store them."""
    return tuple(sorted(joined))


COORDINATOR_EPOCH: Final = "coordinator_epoch"


def _in(states: Iterable[TransactionState]) -> str:
    return f"IN ({', '.join(repr(state.label) for state in states)})"


# SQLite uses a partial index only if the query spells the condition in the same way.
IS_ONGOING: Final = f"= '{ONGOING.label}'"
IS_DECIDED: Final = _in(state for state in TransactionState if state.is_decided)
MAY_EXPIRE: Final = _in(state for state in TransactionState if state.may_expire)

_IN_TABLE: Final = {"start_time_ms": "start_time", "last_update_time_ms": "last_update_time"}
"""The fields of TransactionMetadata with other names in the table."""
_NAMES: Final = [_IN_TABLE.get(field, field) for field in TransactionMetadata._fields]


def _metadata(row: tuple[Any, ...]) -> TransactionMetadata:
    (
        *first, state, timeout_ms, start, updated, partitions, groups, next_id, version, id_, producer_id,
    ) = row  # fmt: skip
    tps = frozenset(TopicPartition(*tp) for tp in parsed(partitions))
    return TransactionMetadata._make((
        id_, producer_id, *first, TransactionState.from_label(state), timeout_ms, start, updated, tps,
        frozenset(parsed(groups)), next_id, version,
    ))  # fmt: skip


TRANSACTIONAL_IDS: Final = TableOf(
    "transactional_ids",
    # The producer id has an index and seldom changes.
    (*_NAMES[2:], "transactional_id", "producer_id"),
    "transactional_id",
    _metadata,
    fixed="producer_id",
)
NEXT_TIMEOUT: Final = (
    f"SELECT start_time + timeout_ms FROM transactional_ids WHERE state {IS_ONGOING} "
    "ORDER BY start_time + timeout_ms LIMIT 1"
)
"""When the next open transaction times out. It is aborted only after that time."""
OLDEST_DECIDED: Final = (
    f"SELECT last_update_time FROM transactional_ids WHERE state {IS_DECIDED} "
    "ORDER BY last_update_time LIMIT 1"
)
"""The decision of the oldest incomplete transaction."""
OLDEST_IDLE: Final = (
    f"SELECT last_update_time FROM transactional_ids WHERE state {MAY_EXPIRE} "
    "ORDER BY last_update_time LIMIT 1"
)
"""The last transition of the next id to expire."""
_TIMED_OUT: Final = (
    "SELECT transactional_id FROM transactional_ids "
    f"WHERE state {IS_ONGOING} AND start_time + timeout_ms < ? ORDER BY start_time + timeout_ms LIMIT 1"
)
# `instr` keeps SQLite on the index of open transactions (few); a range would use that of ids (many).
_OWNED: Final = (
    f"SELECT transactional_id, producer_epoch FROM transactional_ids WHERE state {IS_ONGOING} "
    f"AND (instr(transactional_id, '{SINK}') = 1 OR instr(transactional_id, '{OWNED_BY}')) "
    "ORDER BY start_time + timeout_ms"
)


@dataclass(slots=True)
class TransactionMemo(Memo):
    rows: dict[str, TransactionMetadata | None] = field(default_factory=dict)
    """The loaded rows by transactional id; None for an absent row."""
    decided: frozenset[str] | None = None
    """The ids with a decided, incomplete transaction; None if not loaded yet."""
    owned: dict[str, int] | None = None
    """The lock numbers of open transactions with an owner; None if not loaded yet."""
    survives = APPENDS

    def follow(self, saved: TransactionMetadata) -> None:
        transactional_id = saved.transactional_id
        self.rows[transactional_id] = saved
        if self.owned is not None and has_owner(transactional_id):
            if saved.state is ONGOING:
                self.owned[transactional_id] = owner_lock(transactional_id, saved.producer_epoch)
            else:
                self.owned.pop(transactional_id, None)
        if self.decided is None:
            return
        if saved.state.is_decided:
            self.decided |= {transactional_id}
        elif transactional_id in self.decided:
            self.decided -= {transactional_id}


def load(unit: Folding, transactional_id: str) -> TransactionMetadata | None:
    """The metadata of the transactional id, None if it is unknown; cached in a memo."""
    rows = unit.memos[TransactionMemo].rows
    if transactional_id not in rows:
        rows[transactional_id] = TRANSACTIONAL_IDS.find(unit, transactional_id)
    return rows[transactional_id]


def read_where(
    connection: sqlite3.Connection, condition: str = "1", parameters: tuple[object, ...] = ()
) -> Iterator[TransactionMetadata]:
    """The transactions that match an SQL condition, ordered by transactional id."""
    some = TRANSACTIONAL_IDS.where(f"{condition} ORDER BY transactional_id")
    return TRANSACTIONAL_IDS.read(connection, some, parameters)


def save(
    unit: Folding, before: TransactionMetadata | None, event: kinds.TransactionStateChanged
) -> None:
    """Projection only: save the row of the transactional id; `before` is the present one."""
    (
        timestamp, id_, producer_id, epoch, last_epoch, previous_id, _, state, timeout_ms, start_time_ms,
        partitions, groups, version, next_id,
    ) = event  # fmt: skip
    metadata = tuple.__new__(TransactionMetadata, (
        id_, producer_id, epoch, last_epoch, previous_id, state, timeout_ms, start_time_ms, timestamp,
        frozenset(partitions), frozenset(groups), next_id, version,
    ))  # fmt: skip
    if before is not None and before.producer_id == producer_id:
        unit.save("transactional_ids", id_, TRANSACTIONAL_IDS.update, _row, metadata)
    else:
        unit.execute(TRANSACTIONAL_IDS.replace, (*_row(metadata), producer_id))
    unit.memos[TransactionMemo].follow(metadata)
    if state is ONGOING:
        unit.memos[Due].by(start_time_ms + timeout_ms + 1)


def expired(unit: Folding, event: kinds.TransactionalIdExpired, position: int) -> None:
    unit.execute(TRANSACTIONAL_IDS.delete, (event.transactional_id,))
    unit.memos[TransactionMemo].rows.pop(event.transactional_id, None)


def _row(metadata: TransactionMetadata) -> tuple[object, ...]:
    (
        id_, _, *first, state, timeout_ms, start, updated, partitions, groups, next_id, version,
    ) = metadata  # fmt: skip
    texts = partitions_json(in_order(partitions)), texts_json(in_order(groups))
    return (*first, state.label, timeout_ms, start, updated, *texts, next_id, version, id_)


def record(
    unit: Unit, before: TransactionMetadata | None, after: TransactionMetadata, now_ms: int
) -> None:
    (
        id_, producer_id, epoch, last_epoch, previous_id, state, timeout_ms, start_time_ms, _, partitions,
        groups, next_id, version,
    ) = after  # fmt: skip
    assert before is None or before.transactional_id == id_, id_
    # `tuple.__new__` takes half as long as the class, and this runs three times for each transaction.
    changed = tuple.__new__(kinds.TransactionStateChanged, (
        now_ms, id_, producer_id, epoch, last_epoch, previous_id,
        None if before is None else before.state, state, timeout_ms, start_time_ms,
        in_order(partitions), in_order(groups), version, next_id,
    ))  # fmt: skip
    unit.record(changed)


def join(
    unit: Unit,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    version: int | None,
    now_ms: int,
    *,
    tps: frozenset[TopicPartition] = frozenset(),
    groups: frozenset[str] = frozenset(),
) -> None:
    """Ensure that the partitions and groups are in the producer's open transaction (KIP-890). Version 1
    requires that they were added before. Version 2 adds them now, and begins the transaction if none is
    open. AddPartitionsToTxn and AddOffsetsToTxn pass None and do the same. Raises the errors of
    `decisions.verify` and `decisions.add_to_transaction`."""
    current = load(unit, transactional_id)
    if version is not None and version < EPOCH_PER_TRANSACTION:
        for tp in tps:
            verify(current, *producer, tp)
        for group in groups:
            verify(current, *producer, group)
        return
    stale = errors.ProducerFencedError if version is None else errors.InvalidProducerEpochError
    after = add_to_transaction(current, *producer, tps, groups, now_ms, stale=stale)
    if after is not None:
        record(unit, current, after, now_ms)


def epoch(source: Folding | sqlite3.Connection) -> int:
    """The current coordinator epoch; 0 before the first election."""
    return counter(source, COORDINATOR_EPOCH)


def elect(unit: Unit, now_ms: int, above: int = 0) -> int:
    """Elect a coordinator with a coordinator epoch higher than `above`: from now on markers of earlier
    ones are refused. Returns the epoch."""
    taken = max(epoch(unit), above) + 1
    unit.record(kinds.CoordinatorElected(timestamp=now_ms, epoch=taken))
    return taken


def write_markers_and_complete(
    unit: Unit, decided: TransactionMetadata, coordinator_epoch: int, now_ms: int
) -> TransactionMetadata | None:
    """The second step: write all markers and Complete…. Returns None if this was done already.
    The metadata must equal `decided` in every field, since the next transaction of the id may have begun.
    A partition that has seen a newer producer epoch gets no marker. Raises
    TransactionCoordinatorFencedError if another coordinator was elected after the first step."""
    transactional_id = decided.transactional_id
    metadata = load(unit, transactional_id)
    if metadata != decided:
        return None
    if epoch(unit) != coordinator_epoch:
        raise errors.TransactionCoordinatorFencedError(
            f"transactional id {transactional_id!r}: decided under coordinator epoch "
            f"{coordinator_epoch}, now it is {epoch(unit)}; the newer coordinator completes it"
        )
    producer, committed = decided.producer, decided.state is PREPARE_COMMIT
    for tp in in_order(decided.partitions):
        try:
            append.append_marker(
                unit,
                partition_rows.load(unit, tp),
                producer,
                coordinator_epoch,
                committed=committed,
                transactional_id=transactional_id,
                now_ms=now_ms,
                transaction_version=decided.transaction_version,
            )
        except (errors.UnknownTopicOrPartitionError, errors.InvalidProducerEpochError):
            continue  # The topic was deleted, so it needs no marker.
    completed = complete(decided, now_ms)
    record(unit, decided, completed, now_ms)
    return completed


def decided_ids(unit: Unit) -> frozenset[str]:
    """The transactional ids with a decided, incomplete transaction."""
    memo = unit.memos[TransactionMemo]
    if memo.decided is None:
        memo.decided = frozenset(
            transactional_id
            for (transactional_id,) in unit.execute(
                f"SELECT transactional_id FROM transactional_ids WHERE state {IS_DECIDED}"
            )
        )
    return memo.decided


def owned(source: Unit | sqlite3.Connection) -> Mapping[str, int]:
    """The lock numbers of the open transactions with an owner, dead or alive."""
    memo = source.memos[TransactionMemo] if isinstance(source, Unit) else TransactionMemo()
    if memo.owned is None:
        memo.owned = {
            transactional_id: owner_lock(transactional_id, producer_epoch)
            for transactional_id, producer_epoch in source.execute(_OWNED).fetchall()
        }
    return memo.owned


def keep_alive(
    unit: Unit, transactional_id: str, producer: ProducerIdAndEpoch, timeout_ms: int, now_ms: int
) -> None:
    """Extend the time-out of the producer's open transaction, which has made progress, if over half of it
    has passed. Raises the errors of `decisions.prolong`."""
    current = load(unit, transactional_id)
    after = prolong(current, *producer, timeout_ms, now_ms)
    if after is not None:
        record(unit, current, after, now_ms)


def first_timed_out(unit: Unit, now_ms: int) -> str | None:
    """The id of the open transaction that timed out first; None if none has."""
    row = unit.execute(_TIMED_OUT, (now_ms,)).fetchone()
    return None if row is None else str(row[0])


def expire(unit: Unit, now_ms: int, expiration_ms: int) -> int:
    """Remove transactional ids that were unused too long. Returns how many."""
    rows = unit.execute(
        "SELECT transactional_id, producer_id, producer_epoch FROM transactional_ids "
        f"WHERE state {MAY_EXPIRE} AND last_update_time <= ? "
        f"ORDER BY last_update_time LIMIT {STEPS_PER_UNIT}",
        (now_ms - expiration_ms,),
    ).fetchall()
    for transactional_id, producer_id, producer_epoch in rows:
        unit.record(
            kinds.TransactionalIdExpired(
                timestamp=now_ms,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
    return len(rows)
