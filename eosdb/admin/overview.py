"""Reads the figures of a whole file in one snapshot, at a cost that does not grow with the length of its
history."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from eosdb.admin import dead_letter_figures, diagnosis
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.offsets import OWN
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import lag
from eosdb.model.overview import (
    GroupFigures,
    GroupPosition,
    Overview,
    PartitionFigures,
)
from eosdb.model.values import GroupState, TopicPartition
from eosdb.store import journal
from eosdb.store.file.open_files import size_of
from eosdb.store.schema import file_id


# One short snapshot, with a fixed number of statements: whoever watches a file must not be what keeps its
# WAL from shrinking, and what the figures cost does not depend on the file's past.
def read(
    connection: sqlite3.Connection,
    path: str,
    foresight: Foresight,
    may_see: Callable[[str, str], bool],
) -> Overview:
    """Read the figures; `may_see(kind, name)` tells whether the principal may describe that topic or
    group."""
    partitions = [p for p in partition_rows.read_all(connection) if may_see("topic", p.topic)]
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return Overview(
        path=path,
        file_id=file_id.read(connection),
        now_ms=foresight.now_ms,
        size_bytes=size_of(path),
        wal_bytes=size_of(f"{path}-wal"),
        free_bytes=free * page_size,
        journal_position=journal.last_position(connection),
        partitions=tuple(_figures(p) for p in partitions),
        groups=tuple(_groups(connection, partitions, foresight, may_see)),
        transactions=tuple(
            transaction
            for transaction in diagnosis.open_transactions(connection, foresight)
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
    foresight: Foresight,
    may_see: Callable[[str, str], bool],
) -> Iterator[GroupFigures]:
    standing: defaultdict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for group_id, topic, number, offset in connection.execute(
        "SELECT group_id, topic, partition, committed_offset FROM group_offsets"
    ):
        standing[group_id][TopicPartition(topic, number)] = offset
    known_groups = group_rows.load_all(connection)
    names = {p.topic_id: p.topic for p in partitions}
    pending: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    for group_id, topic, number in connection.execute(
        "SELECT group_id, topic, partition FROM pending_group_offsets"
    ):
        pending[group_id].add(TopicPartition(topic, number))
    groups: dict[str, AnyGroup | None] = {}
    for group_id in group_rows.names(connection):
        if group_id.startswith(OWN) or not may_see("group", group_id):
            continue
        groups[group_id] = group = known_groups.get(group_id)
        # Before its first commit a group has read nothing of the partitions that it reads.
        begins = diagnosis.readers(group, names).keys() | pending[group_id]
        standing[group_id] = dict.fromkeys(begins, -1) | standing[group_id]
    numbers = {p.topic_partition: p.partition_id for p in partitions}
    starts: dict[int, int] = {}
    for tp, offset in (one for group_id in groups for one in standing[group_id].items()):
        if (number := numbers.get(tp)) is not None:
            starts[number] = min(offset, starts.get(number, offset))
    tails = lag.tails(connection, starts)
    for group_id, stored in groups.items():
        group = None if stored is None else foresight.group(stored)
        yield GroupFigures(
            group_id=group_id,
            state=(GroupState.EMPTY if group is None else group.state).value,
            members=0 if group is None else len(group.members),
            positions=tuple(
                GroupPosition(*tp, offset, tails[numbers[tp]].behind(offset))
                for tp, offset in sorted(standing[group_id].items())
                if tp in numbers
            ),
            due=() if stored is None else foresight.of_group(stored),
        )
