"""Reads the figures of a whole file in one snapshot, at a cost that does not grow with the length of its
history."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from eosdb.admin import dead_letter_figures, diagnosis
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.offsets import OWN
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.overview import (
    GroupFigures,
    GroupPosition,
    Overview,
    PartitionFigures,
)
from eosdb.model.values import GroupState
from eosdb.store import journal
from eosdb.store.file.open_files import size_of
from eosdb.store.schema import file_id


# One short snapshot, with a fixed number of statements: whoever watches a file must not be what keeps its
# WAL from shrinking, and what the figures cost does not depend on the file's past.
def read(
    connection: sqlite3.Connection, path: str, now_ms: int, may_see: Callable[[str, str], bool]
) -> Overview:
    """Read the figures; `may_see(kind, name)` tells whether the principal may describe that topic or
    group."""
    partitions = [p for p in partition_rows.read_all(connection) if may_see("topic", p.topic)]
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return Overview(
        path=path,
        file_id=file_id.read(connection),
        now_ms=now_ms,
        size_bytes=size_of(path),
        wal_bytes=size_of(f"{path}-wal"),
        free_bytes=free * page_size,
        journal_position=journal.last_position(connection),
        partitions=tuple(_figures(p) for p in partitions),
        groups=tuple(_groups(connection, partitions, may_see)),
        transactions=tuple(
            transaction
            for transaction in diagnosis.open_transactions(connection, now_ms)
            if may_see("topic", transaction.topic)
        ),
        dead_letters=tuple(dead_letter_figures.read(connection, partitions)),
    )


def _figures(partition: Partition) -> PartitionFigures:
    return PartitionFigures(
        topic=partition.topic,
        partition=partition.partition,
        offsets=partition.offsets(),
        size_bytes=partition.size_bytes,
        max_timestamp=partition.max_timestamp,
    )


def _groups(
    connection: sqlite3.Connection,
    partitions: Sequence[Partition],
    may_see: Callable[[str, str], bool],
) -> Iterator[GroupFigures]:
    ends = {(p.topic, p.partition): (p.log_start_offset, p.log_end_offset) for p in partitions}
    positions: defaultdict[str, list[GroupPosition]] = defaultdict(list)
    for group_id, topic, number, offset in connection.execute(
        "SELECT group_id, topic, partition, committed_offset FROM group_offsets ORDER BY 1, 2, 3"
    ):
        known = ends.get((topic, number))
        if known is not None:
            start, end = known
            behind = end - (offset if offset > start else start)
            positions[group_id].append(
                GroupPosition(topic, number, offset, behind if behind > 0 else 0)
            )
    known_groups = group_rows.load_all(connection)
    names = {p.topic_id: p.topic for p in partitions}
    pending: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for group_id, topic, number in connection.execute(
        "SELECT group_id, topic, partition FROM pending_group_offsets"
    ):
        pending[group_id].add((topic, number))
    for group_id in group_rows.names(connection):
        if group_id.startswith(OWN) or not may_see("group", group_id):
            continue
        group = known_groups.get(group_id)
        # Before its first commit a group has read nothing of the partitions that it reads.
        begun = {(position.topic, position.partition) for position in positions[group_id]}
        for topic, number in (diagnosis.readers(group, names).keys() | pending[group_id]) - begun:
            if (known := ends.get((topic, number))) is not None:
                start, end = known
                positions[group_id].append(GroupPosition(topic, number, -1, end - start))
        yield GroupFigures(
            group_id=group_id,
            state=(GroupState.EMPTY if group is None else group.state).value,
            members=0 if group is None else len(group.members),
            positions=tuple(sorted(positions[group_id])),
        )
