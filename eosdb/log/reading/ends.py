"""Finds which of many partitions have something new for a reader.

Clients name all their partitions in each request, and most of these have nothing new.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.values import TopicPartition

_PLACES: Final = "json_each(?) AS named, json_each(named.value) AS place"
_ON: Final = "ON topic = named.key AND partition = place.key"
_END: Final = {True: "last_stable_offset", False: "log_end_offset"}
"""The column of the end, by whether only committed data is read."""
_MOVED: Final = {
    read_committed: f"SELECT EXISTS (SELECT 1 FROM {_PLACES} LEFT JOIN partitions {_ON} "
    f"WHERE {end} IS NOT place.value)"
    for read_committed, end in _END.items()
}
_AT_END: Final = {
    read_committed: f"{_PLACES} CROSS JOIN partitions {_ON} WHERE {end} = place.value"
    for read_committed, end in _END.items()
}


def listed(offsets: Mapping[TopicPartition, int]) -> str:
    """Partitions and offsets as JSON, for `have_moved`."""
    by_topic: dict[str, dict[int, int]] = {}
    for tp, offset in offsets.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = offset
    return json.dumps(by_topic)


def have_moved(connection: sqlite3.Connection, ends: str, *, read_committed: bool) -> bool:
    """Whether any partition's end differs from `ends`, or a partition is gone. The rows are not checked:
    a reader that is told so reads them."""
    return bool(connection.execute(_MOVED[read_committed], (ends,)).fetchone()[0])


def idle(
    connection: sqlite3.Connection, positions: Mapping[TopicPartition, int], *, read_committed: bool
) -> Iterator[Partition]:
    """Return the partitions that end at these positions, without damaged ones."""
    return partition_rows.sound(connection, _AT_END[read_committed], (listed(positions),))
