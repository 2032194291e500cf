"""Transactions as rows, and the steps that change them, inside a write unit.

What may happen is decided in `transaction` (pure); here a decision is loaded, recorded as an event,
and its markers are written. A transaction ends in two units: the first decides it (Prepare…), the
second writes every marker and completes it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Final

from eosdb.coordinator.transactions.decisions import TransactionMetadata, add_to_transaction, verify
from eosdb.coordinator.transactions.ending import complete
from eosdb.errors import (
    InvalidProducerEpochError,
    TransactionCoordinatorFencedError,
)
from eosdb.events.encoding import partitions_json, texts_json
from eosdb.events.kinds import (
    CoordinatorElected,
    TransactionalIdExpired,
    TransactionStateChanged,
)
from eosdb.log import append, partition_rows
from eosdb.model.damage import reads
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionState,
)
from eosdb.store.counters import counter, read_counter
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

COORDINATOR_EPOCH: Final = "coordinator_epoch"
DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

_COLUMNS: Final = (
    "transactional_id, producer_id, producer_epoch, last_producer_epoch, previous_producer_id, "
    "state, timeout_ms, start_time, last_update_time, partitions, groups, next_producer_id, "
    "transaction_version"
)
_BY_ID: Final = f"SELECT {_COLUMNS} FROM transactional_ids WHERE transactional_id = ?"
NEXT_TIMEOUT: Final = (
    "SELECT start_time + timeout_ms FROM transactional_ids WHERE state = 'Ongoing' "
    "ORDER BY start_time + timeout_ms LIMIT 1"
)
"""When the next open transaction times out (it is aborted after that time, not at it)."""
OLDEST_IDLE: Final = (
    "SELECT last_update_time FROM transactional_ids "
    "WHERE state IN ('Empty', 'CompleteCommit', 'CompleteAbort') ORDER BY last_update_time LIMIT 1"
)
"""The last transition of the id that expires next."""
_TIMED_OUT: Final = (
    "SELECT transactional_id FROM transactional_ids "
    "WHERE state = 'Ongoing' AND start_time + timeout_ms < ? ORDER BY start_time + timeout_ms LIMIT 1"
)
_SAVE: Final = (
    f"INSERT INTO transactional_ids ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (transactional_id) DO UPDATE SET producer_id = excluded.producer_id, "
    "producer_epoch = excluded.producer_epoch, last_producer_epoch = excluded.last_producer_epoch, "
    "previous_producer_id = excluded.previous_producer_id, state = excluded.state, "
    "timeout_ms = excluded.timeout_ms, start_time = excluded.start_time, "
    "last_update_time = excluded.last_update_time, partitions = excluded.partitions, "
    "groups = excluded.groups, next_producer_id = excluded.next_producer_id, "
    "transaction_version = excluded.transaction_version"
)


def load(unit: Unit, transactional_id: str) -> TransactionMetadata | None:
    """What the coordinator knows of the id; None when it knows nothing."""
    key = ("transaction", transactional_id)
    if key in unit.memo:
        known: TransactionMetadata | None = unit.memo[key]
        return known
    row = unit.execute(_BY_ID, (transactional_id,)).fetchone()
    metadata = None if row is None else from_row(row)
    unit.memo[key] = metadata
    return metadata


def read(connection: sqlite3.Connection, transactional_id: str) -> TransactionMetadata | None:
    row = connection.execute(_BY_ID, (transactional_id,)).fetchone()
    return None if row is None else from_row(row)


def read_where(
    connection: sqlite3.Connection, condition: str = "1", parameters: tuple[object, ...] = ()
) -> Iterator[TransactionMetadata]:
    """The transactions that meet an SQL condition, by transactional id."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM transactional_ids WHERE {condition} ORDER BY transactional_id",
        parameters,
    )
    return map(from_row, rows)


@reads("transactional_ids")
def from_row(row: tuple[object, ...]) -> TransactionMetadata:
    (tid, pid, epoch, last_epoch, previous, state, timeout, start, update, tps, groups, *end) = row
    return TransactionMetadata(
        transactional_id=tid,  # type: ignore[arg-type]
        producer_id=pid,  # type: ignore[arg-type]
        producer_epoch=epoch,  # type: ignore[arg-type]
        last_producer_epoch=last_epoch,  # type: ignore[arg-type]
        previous_producer_id=previous,  # type: ignore[arg-type]
        state=TransactionState.from_label(str(state)),
        timeout_ms=timeout,  # type: ignore[arg-type]
        start_time_ms=start,  # type: ignore[arg-type]
        last_update_time_ms=update,  # type: ignore[arg-type]
        partitions=frozenset(
            TopicPartition(tp["topic"], tp["partition"]) for tp in json.loads(str(tps))
        ),
        groups=frozenset(json.loads(str(groups))),
        next_producer_id=end[0],  # type: ignore[arg-type]
        transaction_version=end[1],  # type: ignore[arg-type]
    )


def save(unit: Unit, metadata: TransactionMetadata) -> None:
    """Projection only: the row of the id."""
    key = ("transaction", metadata.transactional_id)
    unit.save("transactional_ids", key, _SAVE, _row, metadata)
    unit.memo[key] = metadata


def _row(metadata: TransactionMetadata) -> tuple[object, ...]:
    return (
        metadata.transactional_id,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.last_producer_epoch,
        metadata.previous_producer_id,
        metadata.state.label,
        metadata.timeout_ms,
        metadata.start_time_ms,
        metadata.last_update_time_ms,
        partitions_json(sorted(metadata.partitions)),
        texts_json(sorted(metadata.groups)),
        metadata.next_producer_id,
        metadata.transaction_version,
    )


def record(
    unit: Unit, before: TransactionMetadata | None, after: TransactionMetadata, now_ms: int
) -> None:
    """Make the decided transition happen."""
    unit.record(
        TransactionStateChanged(
            timestamp=now_ms,
            transactional_id=after.transactional_id,
            producer_id=after.producer_id,
            producer_epoch=after.producer_epoch,
            last_producer_epoch=after.last_producer_epoch,
            previous_producer_id=after.previous_producer_id,
            from_state=None if before is None else before.state,
            to_state=after.state,
            timeout_ms=after.timeout_ms,
            start_time_ms=after.start_time_ms,
            partitions=tuple(sorted(after.partitions)),
            groups=tuple(sorted(after.groups)),
            next_producer_id=after.next_producer_id,
            transaction_version=after.transaction_version,
        )
    )


def join(
    unit: Unit,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    version: int,
    now_ms: int,
    *,
    tps: frozenset[TopicPartition] = frozenset(),
    groups: frozenset[str] = frozenset(),
) -> None:
    """See that the partitions and groups are in the producer's open transaction (KIP-890).

    Under version 1 it must have been added before; under version 2 it joins now, and begins the
    transaction if there is none. Raises the errors of `transaction.verify` and
    `transaction.add_to_transaction`.
    """
    current = load(unit, transactional_id)
    if version < EPOCH_PER_TRANSACTION:
        for tp in tps:
            verify(current, *producer, partition=tp)
        for group in groups:
            verify(current, *producer, group=group)
        return
    after = add_to_transaction(
        current, *producer, tps, groups, now_ms, stale=InvalidProducerEpochError
    )
    if after is not None:
        record(unit, current, after, now_ms)


def epoch(unit: Unit) -> int:
    """The epoch of the current coordinator; 0 before the first election."""
    return counter(unit, COORDINATOR_EPOCH)


def read_epoch(connection: sqlite3.Connection) -> int:
    """The same for whoever only reads."""
    return read_counter(connection, COORDINATOR_EPOCH)


def elect(unit: Unit, now_ms: int, above: int = 0) -> int:
    """Take over coordination, under an epoch higher than `above`: markers of the coordinators before
    are refused from now on."""
    taken = max(epoch(unit), above) + 1
    unit.record(CoordinatorElected(timestamp=now_ms, epoch=taken))
    return taken


def write_markers_and_complete(
    unit: Unit, decided: TransactionMetadata, coordinator_epoch: int, now_ms: int
) -> None:
    """The second step: every marker, then Complete…; nothing when somebody else has done it.

    Whoever completed it may be followed by the id's next transaction, so what was decided is compared
    as a whole. A partition that has seen a newer epoch of the producer is left out. Raises
    TransactionCoordinatorFencedError when another coordinator took over since the first step.
    """
    transactional_id = decided.transactional_id
    metadata = load(unit, transactional_id)
    if metadata != decided:
        return
    if epoch(unit) != coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"transactional id {transactional_id!r}: decided under coordinator epoch "
            f"{coordinator_epoch}, now it is {epoch(unit)}; the newer coordinator completes it"
        )
    for tp in sorted(decided.partitions):
        if partition_rows.exists(unit, tp):  # A topic deleted meanwhile counts as done.
            with contextlib.suppress(InvalidProducerEpochError):
                append.append_marker(
                    unit,
                    partition_rows.load(unit, tp),
                    decided.producer_id,
                    decided.producer_epoch,
                    coordinator_epoch,
                    committed=decided.state is TransactionState.PREPARE_COMMIT,
                    transactional_id=transactional_id,
                    now_ms=now_ms,
                    transaction_version=decided.transaction_version,
                )
    record(unit, decided, complete(decided, now_ms), now_ms)


def decided_ids(unit: Unit) -> frozenset[str]:
    """Transactional ids that are decided and not completed."""
    known: frozenset[str] | None = unit.memo.get("decided")
    if known is None:
        known = frozenset(
            transactional_id
            for (transactional_id,) in unit.execute(
                "SELECT transactional_id FROM transactional_ids "
                "WHERE state IN ('PrepareCommit', 'PrepareAbort')"
            )
        )
        unit.memo["decided"] = known
    return known


def first_timed_out(unit: Unit, now_ms: int) -> str | None:
    """The open transaction whose timeout passed first; None when none has."""
    row = unit.execute(_TIMED_OUT, (now_ms,)).fetchone()
    return None if row is None else str(row[0])


def expire(unit: Unit, now_ms: int, expiration_ms: int) -> int:
    """Forget transactional ids that nobody has used for so long. Returns how many."""
    rows = unit.execute(
        "SELECT transactional_id, producer_id, producer_epoch FROM transactional_ids "
        "WHERE state IN ('Empty', 'CompleteCommit', 'CompleteAbort') AND last_update_time <= ? "
        f"ORDER BY last_update_time LIMIT {STEPS_PER_UNIT}",
        (now_ms - expiration_ms,),
    ).fetchall()
    for transactional_id, producer_id, producer_epoch in rows:
        unit.record(
            TransactionalIdExpired(
                timestamp=now_ms,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
    return len(rows)
