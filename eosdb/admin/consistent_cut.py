"""Computes offsets up to which all partitions can be read without seeing part of a transaction.

Last stable offsets do not suffice. A committed transaction may lie below the last stable offset in one
partition, but above it in another, behind another producer's open transaction. Reading both partitions up
to their last stable offsets would return half of the transaction. So this module moves the ends back until
each committed transaction lies wholly before or wholly after them.

The ends of successive cuts never move back: a transaction that is open now has all its data after the
present ends, in every partition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import Authorizer
from eosdb.events.kinds import BatchAppended, MarkerWritten, TransactionStateChanged
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.model.damage import reads
from eosdb.model.validation import check_int, check_topic_partition
from eosdb.model.values import COMPLETE_ABORT, COMPLETE_COMMIT, PartitionOffsets, TopicPartition
from eosdb.store import baseline
from eosdb.store.schema.event_names import member

TOPIC_NUMBERS: Final = "SELECT topic, topic_id FROM topics"


def first_offset(start: int, file_id: str, topic: str, topic_number: int) -> str:
    """Return an expression for the lower bound of a range. It fails through SQLite's JSON functions, which
    quote their argument: no other function raises an error with a chosen text in a SELECT."""
    told = literal(
        f"since this was planned the file was replaced, or topic {topic} was deleted or recreated: "
        "make the DataFrame again"
    )
    # decisions/0057: SQLite computes this bound first, so a mismatch is an error even without any row.
    return (
        f"CASE WHEN (SELECT file_id FROM eosdb_file) = {literal(file_id)} AND EXISTS (SELECT 1 FROM topics "
        f"WHERE topic = {literal(topic)} AND topic_id = {topic_number:d}) THEN {start:d} "
        f"ELSE json_extract('{{}}', {told}) END"
    )


def literal(text: str) -> str:
    """Return the text as an SQL literal: a name in a file from elsewhere may be any text."""
    return "'" + text.replace("'", "''") + "'"


_APPENDS: Final = (
    "SELECT DISTINCT position FROM records WHERE partition_id = ? "
    'AND "offset" >= ? AND "offset" < ? AND is_transactional AND control IS NULL'
)
_APPENDED_BY: Final = "SELECT transactional_id FROM eosdb_journal WHERE position = ?"
_TO_STATE: Final = member(TransactionStateChanged, "to_state")
_ENDED: Final = f"""
    SELECT position, {_TO_STATE} FROM eosdb_journal
    WHERE transactional_id = ? AND position {{side}} ? AND kind = 'TransactionStateChanged'
        AND {_TO_STATE} IN ({COMPLETE_COMMIT.value}, {COMPLETE_ABORT.value})
    ORDER BY position {{order}} LIMIT 1
"""
_END_BEHIND: Final = _ENDED.format(side=">", order="")
_END_BEFORE: Final = _ENDED.format(side="<", order="DESC")
_MARKED: Final = f"""
    SELECT position, {member(MarkerWritten, "control")} FROM eosdb_journal
    WHERE transactional_id = ? AND position {{side}} ? AND position <= ? AND kind = 'MarkerWritten'
    ORDER BY position {{order}} LIMIT 1
"""
_MARKED_BEHIND: Final = _MARKED.format(side=">", order="")
_MARKED_BEFORE: Final = _MARKED.format(side="<", order="DESC")
_COMMITTED: Final = (COMPLETE_COMMIT.value, "COMMIT")
_DATA: Final = (
    f"SELECT {', '.join(member(BatchAppended, n) for n in ('partition_id', 'base_offset', 'count'))} "
    "FROM eosdb_journal WHERE transactional_id = ? AND position > ? AND position < ? "
    "AND kind = 'BatchAppended'"
)


Spans = dict[int, tuple[int, int]]
"""A transaction's first and last data offset in each partition, by partition id."""


Cut = dict[TopicPartition, tuple[PartitionOffsets, int]]
"""The offsets of each partition, and the end offset up to which all can be read together."""


def consistent_cut(core: Core) -> dict[TopicPartition, tuple[PartitionOffsets, int]]:
    """As `partition_offsets`, with the end offset up to which each partition can be read without seeing
    part of a transaction: its last stable offset, or less if a transaction below it is not yet fully
    readable in every partition. Data below these offsets never changes, and later cuts are never lower."""
    core.coordinator.serve_readers()
    with core.store.read() as connection:
        return read(connection, core.authorizer)


def read(connection: sqlite3.Connection, authorizer: Authorizer) -> Cut:
    """Return the cut of the partitions that the principal may describe."""
    partitions = partition_rows.read_all(connection)
    ends = consistent_ends(connection, partitions)
    return {
        partition.topic_partition: (partition.offsets(), ends[partition.partition_id])
        for partition in partitions
        if authorizer.allows(connection, "describe", "topic", partition.topic)
    }


def consistent_ends(
    connection: sqlite3.Connection, partitions: Iterable[Partition]
) -> dict[int, int]:
    """Return, by partition id, the furthest offsets up to which all partitions can be read together."""
    by_id = {p.partition_id: p for p in partitions}
    ends = {id_: p.last_stable_offset for id_, p in by_id.items()}
    spans_of: dict[tuple[str, int], Spans] = {}
    waiting = [
        (id_, p.last_stable_offset, p.log_end_offset)
        for id_, p in by_id.items()
        if p.last_stable_offset < p.log_end_offset
    ]
    begun = baseline.read(connection).position if waiting else 0
    while waiting:
        for spans in _committed_in(connection, *waiting.pop(), begun, spans_of):
            stored = _stored(spans, by_id)
            if all(last < ends[id_] for id_, (_, last) in stored.items()):
                continue
            for id_, (first, _) in stored.items():
                if first < ends[id_]:
                    waiting.append((id_, first, ends[id_]))
                    ends[id_] = first
    return ends


def transactions_in(
    core: Core, topic_partition: TopicPartition, start: int, end: int
) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Return the committed transactions with data in [start, end) of the partition, each with its first
    and last data offset in every partition that still exists. Raises UnknownTopicOrPartitionError and
    TopicAuthorizationFailedError."""
    tp = check_topic_partition(topic_partition)
    check_int("start", start, 0)
    check_int("end", end, 0)
    with core.reading("describe", "topic", tp.topic) as connection:
        partition_id = partition_rows.read(connection, tp).partition_id
        by_id = {p.partition_id: p for p in partition_rows.read_all(connection)}
        begun = baseline.read(connection).position
        committed = _committed_in(connection, partition_id, start, end, begun, {})
        return [
            {by_id[id_].topic_partition: span for id_, span in _stored(spans, by_id).items()}
            for spans in committed
        ]


def _stored(spans: Spans, by_id: dict[int, Partition]) -> Spans:
    return {
        id_: (max(first, by_id[id_].log_start_offset), last)
        for id_, (first, last) in spans.items()
        if id_ in by_id and last >= by_id[id_].log_start_offset
    }


def _committed_in(
    connection: sqlite3.Connection,
    partition_id: int,
    start: int,
    end: int,
    baseline_position: int,
    spans_of: dict[tuple[str, int], Spans],
) -> Iterator[Spans]:
    appends = connection.execute(_APPENDS, (partition_id, start, end)).fetchall()
    yielded: set[tuple[str, int]] = set()
    for (position,) in sorted(appends):
        row = connection.execute(_APPENDED_BY, (position,)).fetchone()
        if row is None or row[0] is None:
            continue
        transactional_id = row[0]
        to = (transactional_id, position, baseline_position)
        # The journal before the baseline is deleted. There, only a marker can show that a transaction
        # ended: it follows all records of the transaction, and is kept as long as they are.
        ended = connection.execute(_MARKED_BEHIND, to).fetchone()
        ended = ended or connection.execute(_END_BEHIND, to[:2]).fetchone()
        if ended is None or ended[1] not in _COMMITTED:
            continue  # Readers see no record of an open or aborted transaction.
        key = (transactional_id, ended[0])
        if key in yielded:
            continue
        yielded.add(key)
        if key not in spans_of:
            before = connection.execute(_END_BEFORE, to[:2]).fetchone()
            before = before or connection.execute(_MARKED_BEFORE, to).fetchone()
            begun = 0 if before is None else before[0]
            spans_of[key] = _spans(connection, transactional_id, begun, ended[0])
        yield spans_of[key]


@reads("journal")
def _spans(connection: sqlite3.Connection, transactional_id: str, begun: int, ended: int) -> Spans:
    spans: Spans = {}
    for partition_id, first, count in connection.execute(_DATA, (transactional_id, begun, ended)):
        last = first + count - 1
        span = spans.get(partition_id, (first, last))
        spans[partition_id] = (min(span[0], first), max(span[1], last))
    return spans
