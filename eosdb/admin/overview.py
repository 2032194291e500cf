"""Reads the figures of a whole file in one snapshot, at a cost that does not grow with the length of its
history."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from eosdb.broker.core import Core
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.offsets import OWN
from eosdb.coordinator.groups.rows import AnyGroup
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import lag
from eosdb.model.clock import SystemClock
from eosdb.model.damage import parsed, reads
from eosdb.model.overview import (
    DeadLetterFigures,
    GroupFigures,
    GroupPosition,
    Overview,
    PartitionFigures,
    ScheduledFigures,
)
from eosdb.model.protocol.consumer_protocol import OWNED_BY
from eosdb.model.records.failure_headers import DUE, NEVER, replay_group, replayed_beyond
from eosdb.model.topic_config import MOVED_TO, MOVING_TO
from eosdb.model.values import RELAY_GROUPS, GroupState, OffsetAndMetadata, TopicPartition
from eosdb.store import journal, wal
from eosdb.store.file.failures import describe_writer
from eosdb.store.file.open_files import size_of
from eosdb.store.schema import file_id

from . import diagnosis

STILL_MS: Final = 60_000
"""A group is called still if it has not committed for this long (ms), and a record has waited as long."""
_MARKERS_MAX: Final = 16
"""The most markers expected behind a partition's newest record."""
_LOOKS_MS: Final = 500
_PAUSE_MS: Final = 20
_LARGE_WAL: Final = 1 << 20
COUNTED_MAX: Final = 1_000
"""The most offsets of a partition that are read to count its unreplayed letters."""
_DUE_NEVER: Final = json.dumps(
    [DUE, base64.b64encode(str(NEVER).encode()).decode()], separators=(",", ":")
)
"""The stored form of the header DUE with NEVER. Nothing else in a record's headers can contain it."""
# `typeof` and `length` need only the header of a row, so SQLite does not load large keys and values.
_NEWEST_IS_DEAD: Final = f"""
    SELECT p.partition_id FROM partitions p
    WHERE (
        SELECT typeof(r.headers) = 'text' AND instr(r.headers, ?) > 0
        FROM (
            SELECT control, headers FROM records
            WHERE partition_id = p.partition_id ORDER BY "offset" DESC LIMIT {_MARKERS_MAX}
        ) r
        WHERE typeof(r.control) = 'null' LIMIT 1
    )
"""
_POSITIONS: Final = (
    "SELECT partition, committed_offset, metadata FROM group_offsets "
    "WHERE group_id = ? AND topic = ?"
)
_WAITING: Final = f"""
    SELECT count(*), coalesce(sum(is_data), 0), coalesce(max("offset"), -1)
    FROM (
        SELECT typeof(control) = 'null' AS is_data, "offset" FROM records
        WHERE partition_id = ? AND "offset" >= ? ORDER BY "offset" LIMIT {COUNTED_MAX}
    )
"""
_APPENDED: Final = """
    SELECT (
        SELECT coalesce(j.timestamp, r.timestamp)
        FROM records r LEFT JOIN eosdb_journal j ON j.position = r.position
        WHERE r.partition_id = json_extract(wanted.value, '$[0]')
            AND r."offset" >= json_extract(wanted.value, '$[1]')
        ORDER BY r."offset" LIMIT 1
    )
    FROM json_each(?) wanted ORDER BY wanted.key
"""
_FAILED: Final = """
    SELECT wanted.value, (
        SELECT iif(state IN ('Empty', 'CompleteAbort'), last_update_time, -1) FROM transactional_ids
        WHERE transactional_id >= wanted.value || ? AND transactional_id < wanted.value || ?
        ORDER BY last_update_time DESC LIMIT 1
    )
    FROM json_each(?) wanted
"""
_SCHEDULED: Final = """
    SELECT p.topic, count(*), sum(s.due <= ?), min(s.due)
    FROM eosdb_scheduled s JOIN partitions p ON p.partition_id = s.partition_id
    WHERE s.producer_id = -1 GROUP BY p.topic ORDER BY p.topic
"""
_CLOSED: Final = "SELECT topic, config FROM topics WHERE instr(config, 'eosdb.mov') ORDER BY topic"


def _dead_letters(
    connection: sqlite3.Connection, partitions: Sequence[Partition]
) -> Iterator[DeadLetterFigures]:
    """Return the figures of dead letter topics, by name. `partitions` has all partitions of each topic."""
    dead = {number for (number,) in connection.execute(_NEWEST_IS_DEAD, (_DUE_NEVER,))}
    topics: defaultdict[str, list[Partition]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition)
    for topic in sorted(topics):
        if any(partition.partition_id in dead for partition in topics[topic]):
            yield _letters_of(connection, topic, topics[topic])


@reads("group_offsets")
def _letters_of(
    connection: sqlite3.Connection, topic: str, partitions: Sequence[Partition]
) -> DeadLetterFigures:
    replayed = {
        number: (offset, replayed_beyond(metadata))
        for number, offset, metadata in connection.execute(_POSITIONS, (replay_group(topic), topic))
    }
    return DeadLetterFigures(
        topic=topic,
        waiting=sum(
            _waiting(connection, partition, *replayed.get(partition.partition, (0, set())))
            for partition in partitions
        ),
        newest_timestamp=max(partition.max_timestamp for partition in partitions),
    )


def _waiting(
    connection: sqlite3.Connection, partition: Partition, below: int, beyond: set[int]
) -> int:
    """Return the number of dead letters that were not replayed: exact for small numbers, otherwise
    extrapolated from the density of the first letters."""
    start = max(below, partition.log_start_offset)
    if start >= partition.log_end_offset:
        return 0
    rows, letters, last = connection.execute(_WAITING, (partition.partition_id, start)).fetchone()
    if rows == COUNTED_MAX:
        letters = round(letters / (last + 1 - start) * (partition.log_end_offset - start))
    return max(int(letters) - sum(offset >= start for offset in beyond), 0)


# Programs call this often. So the snapshot is short, because a long one keeps the WAL from shrinking, and
# the number of statements does not depend on the file's history.
def overview(core: Core) -> Overview:
    """Return figures of the file from one snapshot: of the partitions, groups, open transactions and dead
    letters that the principal may describe. The cost does not grow with the length of the history."""
    path = core.store.path
    with core.store.read() as connection:
        may_see = core.authorizer.describes(connection)
        foresight = core.coordinator.foresight(connection)
        partitions = [p for p in partition_rows.read_all(connection) if may_see("topic", p.topic)]
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        waiting, (is_read_only, disk_free) = _scheduled(connection, foresight.now_ms), _room(path)
        found = Overview(
            path=path,
            file_id=file_id.read(connection),
            now_ms=foresight.now_ms,
            size_bytes=size_of(path),
            wal_bytes=size_of(f"{path}-wal"),
            free_bytes=free * page_size,
            journal_position=journal.last_position(connection),
            partitions=tuple(_figures(p) for p in partitions),
            groups=tuple(_groups(connection, partitions, foresight, may_see)),
            transactions=tuple(diagnosis.read_open(core, connection, foresight)),
            dead_letters=tuple(_dead_letters(connection, partitions)),
            scheduled=tuple(one for one in waiting if may_see("topic", one.topic)),
            closed_topics=tuple(one for one in _closed(connection) if may_see("topic", one[0])),
            is_read_only=is_read_only,
            disk_free_bytes=disk_free,
        )
    if found.wal_bytes < _LARGE_WAL:
        return found
    # The snapshot above must have ended first, because it would be listed as a reader of the WAL.
    return replace(found, wal_held_by=wal.readers(path))


def write_holder(core: Core) -> str:
    """Describe the process that holds the write lock all the time for `_LOOKS_MS`, without a commit; empty
    if none does. It may be stopped, or another program in a long transaction."""
    clock, before = SystemClock(), core.store.data_version()
    until_ms = clock.monotonic_ms() + _LOOKS_MS
    while holder := describe_writer(core.store.path):
        if core.store.data_version() != before:
            return ""
        if clock.monotonic_ms() >= until_ms:
            return holder
        clock.sleep_ms(_PAUSE_MS)
    return ""


def _room(path: str) -> tuple[bool, int]:
    """Whether the file or its file system is read-only, and the free space there (bytes; -1: unknown)."""
    try:
        system, mode = os.statvfs(os.path.dirname(path) or "."), os.stat(path).st_mode
    except OSError:  # The file was deleted while it is open.
        return False, -1
    writers = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    is_read_only = not mode & writers or bool(system.f_flag & os.ST_RDONLY)
    return is_read_only, system.f_bavail * system.f_frsize


@reads("eosdb_scheduled")
def _scheduled(connection: sqlite3.Connection, now_ms: int) -> list[ScheduledFigures]:
    return [ScheduledFigures(*row) for row in connection.execute(_SCHEDULED, (now_ms,))]


@reads("topics")
def _closed(connection: sqlite3.Connection) -> list[tuple[str, str, bool]]:
    found = [(topic, parsed(config)) for topic, config in connection.execute(_CLOSED)]
    places = [(topic, of.get(MOVED_TO, ""), of.get(MOVING_TO, "")) for topic, of in found]
    return [
        (topic, moved or moving, bool(moved)) for topic, moved, moving in places if moved or moving
    ]


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
    standing: defaultdict[str, dict[TopicPartition, OffsetAndMetadata]] = defaultdict(dict)
    committed_ms: dict[tuple[str, TopicPartition], int] = {}
    for group_id, topic, number, offset, metadata, time_ms in connection.execute(
        "SELECT group_id, topic, partition, committed_offset, metadata, commit_timestamp "
        "FROM group_offsets"
    ):
        standing[group_id][tp := TopicPartition(topic, number)] = OffsetAndMetadata(
            offset, metadata
        )
        committed_ms[group_id, tp] = time_ms
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
        # An assigned partition without a committed offset counts as unread.
        begins = diagnosis.readers(group, names).keys() | pending[group_id]
        standing[group_id] = dict.fromkeys(begins, OffsetAndMetadata(-1)) | standing[group_id]
    numbers = {p.topic_partition: p.partition_id for p in partitions}
    starts: dict[int, int] = {}
    for tp, at in (one for group_id in groups for one in standing[group_id].items()):
        if (number := numbers.get(tp)) is not None:
            starts[number] = min(at.offset, starts.get(number, at.offset))
    tails = lag.tails(connection, starts)
    found = [
        GroupFigures(
            group_id=group_id,
            state=(GroupState.EMPTY if group is None else group.state).value,
            members=0 if group is None else len(group.members),
            positions=tuple(
                GroupPosition(*tp, at.offset, tails[numbers[tp]].behind(at))
                for tp, at in sorted(standing[group_id].items())
                if tp in numbers
            ),
            due=() if stored is None else foresight.of_group(stored),
        )
        for group_id, stored in groups.items()
        for group in [None if stored is None else foresight.group(stored)]
    ]
    return _with_times(connection, found, committed_ms, numbers, tails, foresight.now_ms - STILL_MS)


def _with_times(
    connection: sqlite3.Connection,
    groups: Sequence[GroupFigures],
    committed_ms: Mapping[tuple[str, TopicPartition], int],
    numbers: Mapping[TopicPartition, int],
    tails: Mapping[int, lag.Tail],
    still_ms: int,
) -> Iterator[GroupFigures]:
    """Add since when positions have not moved, and when processors failed."""
    slow: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
    for group in groups:
        is_read = group.members or group.group_id.startswith(RELAY_GROUPS)
        for at in group.positions if is_read else ():
            tp = TopicPartition(at.topic, at.partition)
            if at.behind and committed_ms.get((group.group_id, tp), 0) <= still_ms:
                first = tails[numbers[tp]].first(at.committed_offset)
                slow[group.group_id, tp] = numbers[tp], first
    appended = connection.execute(_APPENDED, (json.dumps(list(slow.values())),))
    still = {
        key: max(committed_ms.get(key, 0), time_ms)
        for key, (time_ms,) in zip(slow, appended, strict=True)
        if time_ms is not None and time_ms <= still_ms
    }
    left = [one.group_id for one in groups if not one.members and (one.behind or not one.positions)]
    bounds = OWNED_BY, f"{OWNED_BY[:-1]}."
    failed = dict(connection.execute(_FAILED, (*bounds, json.dumps(left))))
    for group in groups:
        positions = (
            at._replace(still_since_ms=still.get((group.group_id, TopicPartition(*at[:2])), -1))
            for at in group.positions
        )
        failed_ms = failed.get(group.group_id)
        yield replace(
            group, positions=tuple(positions), failed_ms=-1 if failed_ms is None else failed_ms
        )
