"""A topic's timelines: each partition's transactions from the log, with the groups that read it.

Names are shown to those who may describe what they name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.groups.offsets import OWN
from eosdb.errors import InvalidRequestError
from eosdb.log import partition_rows, timeline
from eosdb.log.timeline import GroupPosition, PartitionTimeline, TransactionSpan
from eosdb.model.values import TopicPartition
from eosdb.validation import check_int, check_topic_partition

MAX_GROUPS: Final = 200
"""Positions that are shown of a partition; those furthest behind come first."""
_POSITIONS: Final = (
    "SELECT group_id, committed_offset FROM group_offsets WHERE topic = ? AND partition = ? "
    "ORDER BY committed_offset, group_id"
)


def check_window(start: int | None, end: int | None, max_transactions: int, max_bins: int) -> None:
    """Raises InvalidRequestError for what is no range of offsets, and for no room at all."""
    for name, offset in (("start", start), ("end", end)):
        if offset is not None:
            check_int(name, offset, 0)
    if start is not None and end is not None and end < start:
        raise InvalidRequestError(f"end: got {end}, expected an offset from start, {start}, on")
    check_int("max_transactions", max_transactions, 0)
    check_int("max_bins", max_bins, 1, 100_000)


def read(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    topic: str,
    partition: int | None,
    start: int | None,
    end: int | None,
    max_transactions: int,
    max_bins: int,
) -> Iterator[PartitionTimeline]:
    """The timelines of the topic's partitions, or of one.

    Raises UnknownTopicOrPartitionError and TopicAuthorizationFailedError.
    """
    tp = check_topic_partition(TopicPartition(topic, 0 if partition is None else partition))
    authorizer.check(connection, "describe", "topic", topic)
    first = partition_rows.read(connection, tp)
    for found in [first] if partition is not None else partition_rows.read_topic(connection, topic):
        read = timeline.read(connection, found, start, end, max_transactions, max_bins)
        shown = tuple(_shown(connection, authorizer, span) for span in read.transactions)
        groups, left_out = _groups(connection, authorizer, found.topic_partition)
        yield replace(read, transactions=shown, groups=groups, groups_left_out=left_out)


def _shown(
    connection: sqlite3.Connection, authorizer: Authorizer, span: TransactionSpan
) -> TransactionSpan:
    name = span.transactional_id
    if name is None or authorizer.allows(connection, "describe", "transactional_id", name):
        return span
    return replace(span, transactional_id=None)


def _groups(
    connection: sqlite3.Connection, authorizer: Authorizer, tp: TopicPartition
) -> tuple[tuple[GroupPosition, ...], int]:
    """Where the groups stand, without eosdb's own notes, and how many more there are."""
    positions: list[GroupPosition] = []
    left_out = 0
    for group_id, offset in connection.execute(_POSITIONS, tp):
        if group_id.startswith(OWN) or not authorizer.allows(
            connection, "describe", "group", group_id
        ):
            continue
        if len(positions) < MAX_GROUPS:
            positions.append(GroupPosition(group_id, offset))
        else:
            left_out += 1
    return tuple(positions), left_out
