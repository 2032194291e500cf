"""Reads the figures of a whole file in one snapshot, at a cost that does not grow with its past."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from eosdb.admin import diagnosis
from eosdb.coordinator.groups import rows as group_rows
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.overview import (
    DeadLetterFigures,
    GroupFigures,
    GroupPosition,
    Overview,
    PartitionFigures,
)
from eosdb.model.values import GroupState
from eosdb.store import journal
from eosdb.store.schema import file_id


def read(
    connection: sqlite3.Connection, path: str, now_ms: int, may_see: Callable[[str, str], bool]
) -> Overview:
    """`may_see(kind, name)` tells whether the principal may describe that topic or group."""
    partitions = [p for p in partition_rows.read_all(connection) if may_see("topic", p.topic)]
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return Overview(
        path=path,
        file_id=file_id.read(connection),
        now_ms=now_ms,
        size_bytes=_size(path),
        wal_bytes=_size(f"{path}-wal"),
        free_bytes=free * page_size,
        journal_position=journal.last_position(connection),
        partitions=tuple(_figures(p) for p in partitions),
        groups=tuple(_groups(connection, partitions, may_see)),
        transactions=tuple(
            found
            for found in diagnosis.open_transactions(connection, now_ms)
            if may_see("topic", found.topic)
        ),
        dead_letters=tuple(_dead_letters(connection, partitions)),
    )


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _figures(found: Partition) -> PartitionFigures:
    return PartitionFigures(
        topic=found.topic,
        partition=found.partition,
        offsets=found.offsets(),
        size_bytes=found.size_bytes,
        max_timestamp=found.max_timestamp,
    )


def _groups(
    connection: sqlite3.Connection,
    partitions: Sequence[Partition],
    may_see: Callable[[str, str], bool],
) -> Iterator[GroupFigures]:
    ends = {(p.topic, p.partition): p for p in partitions}
    positions: defaultdict[str, list[GroupPosition]] = defaultdict(list)
    for group_id, topic, number, offset in connection.execute(
        "SELECT group_id, topic, partition, committed_offset FROM group_offsets ORDER BY 1, 2, 3"
    ):
        known = ends.get((topic, number))
        if known is not None:
            behind = max(known.log_end_offset - max(offset, known.log_start_offset), 0)
            positions[group_id].append(
                GroupPosition(topic=topic, partition=number, committed_offset=offset, behind=behind)
            )
    for group_id in sorted({*positions, *group_rows.names(connection)}):
        if not may_see("group", group_id):
            continue
        group = group_rows.load(connection, group_id)
        yield GroupFigures(
            group_id=group_id,
            state=GroupState.EMPTY.value if group is None else group.state.value,
            members=0 if group is None else len(group.members),
            positions=tuple(positions[group_id]),
        )


def _dead_letters(
    connection: sqlite3.Connection, partitions: Sequence[Partition]
) -> Iterator[DeadLetterFigures]:
    """The topics whose newest record is a dead letter."""
    return iter(())
