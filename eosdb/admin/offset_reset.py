"""Plans the reset of a group's offsets: the targets, and the resulting changes.

Nothing here writes; the plan is made in the caller's snapshot or unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.errors import InvalidRequestError, NonEmptyGroupError
from eosdb.log import partition_rows
from eosdb.log.reading import by_time
from eosdb.model.reports import OffsetReset
from eosdb.model.validation import check_int
from eosdb.model.values import LATEST, TopicPartition

Target = Callable[[sqlite3.Connection, TopicPartition, int], int]
"""Returns the offset to set for one partition; the last argument is the committed offset, -1 for none."""


def plan(
    connection: sqlite3.Connection,
    group_id: str,
    tps: list[TopicPartition],
    target: Target,
    foresight: Foresight,
) -> list[OffsetReset]:
    """Plan a reset. Raises NonEmptyGroupError, InvalidRequestError and UnknownTopicOrPartitionError."""
    stored = group_rows.load(connection, group_id)
    group = None if stored is None else foresight.group(stored)
    if group is not None and group.members:
        raise NonEmptyGroupError(
            f"group {group_id!r} is {group.state.value} with {len(group.members)} members; its "
            "offsets can be reset when all of them have left"
        )
    standing = group_offsets.fetch(connection, group_id, tps, require_stable=False)
    plan = []
    for tp in tps:
        partition = partition_rows.read(connection, tp)
        before = standing[tp].offset if tp in standing else -1
        wanted = target(connection, tp, before)
        after = min(max(wanted, partition.log_start_offset), partition.log_end_offset)
        plan.append(OffsetReset(tp.topic, tp.partition, before, after))
    return plan


def at(timestamp: int) -> Target:
    """The target at a timestamp, which may be the log's beginning or end."""

    def find(connection: sqlite3.Connection, tp: TopicPartition, before: int) -> int:
        partition = partition_rows.read(connection, tp)
        first = by_time.list_offset(connection, partition, timestamp, read_committed=False)
        return partition.log_end_offset if first.offset < 0 else first.offset

    return find


def current(connection: sqlite3.Connection, tp: TopicPartition, before: int) -> int:
    return before if before >= 0 else at(LATEST)(connection, tp, before)


def offset(offset: int | None) -> Target:
    if offset is not None:
        check_int("to_offset", offset, 0)
    return lambda connection, tp, before: offset or 0


def timestamp(timestamp: int | None) -> Target:
    return at(0 if timestamp is None else check_int("to_timestamp", timestamp, 0))


def shift(by: int | None) -> Target:
    if by is not None:
        check_int("shift_by", by, -(2**62), 2**62)

    def shift(connection: sqlite3.Connection, tp: TopicPartition, before: int) -> int:
        if before < 0:
            raise InvalidRequestError(
                f"{tp}: the group has no committed offset to shift; name a target, such as "
                "to_earliest"
            )
        return before + (by or 0)

    return shift
