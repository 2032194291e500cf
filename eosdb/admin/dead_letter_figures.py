"""Finds the topics with dead letters, and counts the letters that have not been replayed: from the
newest record of each partition, so the cost is one lookup per partition, however long the log is."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.overview import DeadLetterFigures
from eosdb.model.records.failure_headers import DUE, NEVER, replay_group, replayed_beyond

_MARKERS_MAX: Final = 16
"""The most markers expected behind a partition's newest record."""
COUNTED_MAX: Final = 1_000
"""The most offsets of a partition that are read to count its unreplayed letters."""
_DUE_NEVER: Final = json.dumps(
    [DUE, base64.b64encode(str(NEVER).encode()).decode()], separators=(",", ":")
)
"""As stored in a record's headers, where nothing else can look like it."""
# `typeof` and `length` do not read what is stored: a large value is not read to look at what follows it.
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


def read(
    connection: sqlite3.Connection, partitions: Sequence[Partition]
) -> Iterator[DeadLetterFigures]:
    """Return the dead letter topics among those of the partitions, by name."""
    dead = {number for (number,) in connection.execute(_NEWEST_IS_DEAD, (_DUE_NEVER,))}
    topics: defaultdict[str, list[Partition]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition)
    for topic in sorted(topics):
        if any(partition.partition_id in dead for partition in topics[topic]):
            yield _figures(connection, topic, topics[topic])


@reads("group_offsets")
def _figures(
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
    """Return the number of letters not replayed: exact while it is small, otherwise extrapolated from
    the density of the first ones."""
    start = max(below, partition.log_start_offset)
    if start >= partition.log_end_offset:
        return 0
    rows, letters, last = connection.execute(_WAITING, (partition.partition_id, start)).fetchone()
    if rows == COUNTED_MAX:
        letters = round(letters / (last + 1 - start) * (partition.log_end_offset - start))
    return max(int(letters) - sum(offset >= start for offset in beyond), 0)
