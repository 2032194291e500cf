"""Measures how much of a file tables, indexes, free pages, topics, and an average transaction use.

On a snapshot it reads the journal and every index, but not the records. Their number follows from the
offsets, and their pages are those that nothing else uses.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from eosdb.broker.core import Core
from eosdb.events.kinds import TransactionStateChanged
from eosdb.log import partition_rows
from eosdb.model.progress import Progress, report_progress
from eosdb.model.reports import StoragePart, StorageStats, TopicStorage
from eosdb.model.values import COMPLETE_ABORT, COMPLETE_COMMIT
from eosdb.store import journal, space
from eosdb.store.schema import newest
from eosdb.store.schema.event_names import member
from eosdb.store.schema.guard import quoted
from eosdb.store.space import Pages

_ROW_OVERHEAD: Final = 6
"""Approximate bytes of a cell besides its columns: their types, the rowid, its place in the page."""
_EXACT: Final = "SELECT pageno FROM dbstat WHERE aggregate = 1 AND name = ?"
"""SQL for the number of pages of a tree. Their bytes overflow in SQLite before 3.41, from 2 GiB on."""
_SCHEMA: Final = "sqlite_schema"
_IS_COMPLETE: Final = (
    f"kind = 'TransactionStateChanged' AND {member(TransactionStateChanged, 'to_state')} "
    f"IN ({COMPLETE_COMMIT.value}, {COMPLETE_ABORT.value})"
)
_POSITIONS: Final = 50_000
"""The number of events that are added up at a time. SQLite sorts them by topic in memory."""
_BELOW: Final = 'SELECT count(*) FROM records WHERE partition_id = ? AND "offset" < ?'


class _Tree(NamedTuple):
    """A table or an index, each of which is a B-tree of pages."""

    name: str
    table: str
    is_index: bool
    columns: tuple[str, ...]
    condition: str
    """The condition of a partial index."""


def stats(core: Core, *, on_progress: Progress | None = None) -> StorageStats:
    """Return what uses the space of the file: records, journal, indexes, state, free pages; per topic that
    the principal may describe; per transaction. Reads the journal and every index, not the records.
    `on_progress(done, total)` counts pages."""

    def work(report: Progress) -> StorageStats:
        with core.store.read() as connection:
            return _read(connection, core.authorizer.describes(connection), report)

    return report_progress(on_progress, work)


def _read(
    connection: sqlite3.Connection, may_see: Callable[[str, str], bool], on_progress: Progress
) -> StorageStats:
    trees, pages = _trees(connection), space.pages(connection)
    used = pages.total - pages.free
    try:
        counts = {
            tree.name: _pages_of(connection, tree.name)
            for tree in trees
            if tree.table == "eosdb_journal"
        }
        # The journal's pages are read twice, so they count twice. `records` has the pages left over.
        total, is_estimate = used + sum(counts.values()), False
        on_progress(0, total)
        for name in (_SCHEMA, *(tree.name for tree in trees if tree.name != "records")):
            if name not in counts:
                counts[name] = _pages_of(connection, name)
                on_progress(sum(counts.values()), total)
        counts["records"] = used - space.unowned(connection, pages) - sum(counts.values())
        sizes = {name: count * pages.size for name, count in counts.items()}
    except sqlite3.OperationalError:  # SQLite was compiled without dbstat.
        total, is_estimate = used, True
        on_progress(0, total)
        sizes = _estimated(connection, trees, pages)
    parts = [StoragePart(_kind(tree), tree.name, sizes[tree.name]) for tree in trees]
    free = StoragePart("free", "", pages.free * pages.size)
    accounted = sum(part.bytes for part in (*parts, free))
    other = StoragePart("other", "", pages.total * pages.size - accounted)
    of_journal = sum(sizes[tree.name] for tree in trees if tree.table == "eosdb_journal")
    transactions, of_transactions, by_topic = _journal(
        connection, of_journal, lambda share: on_progress(used + int((total - used) * share), total)
    )
    on_progress(total, total)
    return StorageStats(
        total_bytes=pages.total * pages.size,
        is_estimate=is_estimate,
        parts=tuple(sorted((*parts, free, other), key=lambda part: -part.bytes)),
        topics=tuple(_topics(connection, by_topic, may_see)),
        transactions=transactions,
        bytes_per_transaction=of_transactions / transactions if transactions else 0.0,
    )


def _pages_of(connection: sqlite3.Connection, tree: str) -> int:
    """Return the pages of a table or index. Raises OperationalError without dbstat."""
    return int(connection.execute(_EXACT, (tree,)).fetchone()[0])


def _trees(connection: sqlite3.Connection) -> list[_Tree]:
    objects = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('table', 'index') "
        "AND rootpage > 0"
    ).fetchall()
    return [
        _Tree(
            name,
            table,
            kind == "index",
            _names(connection, "table_info" if kind == "table" else "index_info", name),
            (sql or "").partition(" WHERE ")[2] if kind == "index" else "",
        )
        for kind, name, table, sql in objects
    ]


def _names(connection: sqlite3.Connection, pragma: str, name: str) -> tuple[str, ...]:
    rows = connection.execute(f"SELECT name FROM pragma_{pragma}(?)", (name,))
    return tuple(column for (column,) in rows if column is not None)


def _kind(tree: _Tree) -> str:
    if tree.table not in newest.tables():
        return "own index" if tree.is_index else "own table"
    if tree.table in newest.EVENT_TABLES:
        kind = tree.table.removeprefix("eosdb_")
    else:
        kind = "baseline" if tree.table.startswith(newest.BASELINE_TABLE) else "state"
    return f"{kind} index" if tree.is_index else kind


def _estimated(
    connection: sqlite3.Connection, trees: Sequence[_Tree], pages: Pages
) -> dict[str, int]:
    """Estimate the pages of each tree: one, and a share of the others in proportion to its content."""
    contents = {}
    for tree in trees:
        where = f" WHERE {tree.condition}" if tree.condition else ""
        (contents[tree.name],) = connection.execute(
            f"SELECT COALESCE(sum({_content(tree.columns)}), 0) FROM {quoted(tree.table)}{where}"
        ).fetchone()
    used = pages.total - pages.free
    beyond = {name: max(content - pages.size, 0) for name, content in contents.items()}
    share = (used - len(trees)) * pages.size / max(sum(beyond.values()), 1)
    return {name: pages.size + int(content * share) for name, content in beyond.items()}


def _content(columns: Iterable[str]) -> str:
    """SQL for the approximate bytes of a row. A number takes fewer bytes than its digits."""
    lengths = (
        f"CASE typeof({name}) WHEN 'integer' THEN 4 WHEN 'real' THEN 8 WHEN 'null' THEN 0 "
        f"ELSE length(CAST({name} AS BLOB)) END + 1"
        for name in map(quoted, columns)
    )
    return " + ".join((*lengths, str(_ROW_OVERHEAD)))


def _journal(
    connection: sqlite3.Connection, journal_bytes: int, on_progress: Callable[[float], object]
) -> tuple[int, float, dict[str | None, float]]:
    """Return the number of transactions completed in the journal, the bytes of all events of transactions,
    and the bytes of events by topic (None: events of no topic)."""
    query = (
        "SELECT topic, transactional_id IS NOT NULL, "
        f"sum({_content(_names(connection, 'table_info', 'eosdb_journal'))}), sum({_IS_COMPLETE}) "
        "FROM eosdb_journal WHERE position > ? AND position <= ? GROUP BY 1, 2"
    )
    sums: Counter[str | None] = Counter()
    transactions = of_transactions = 0
    (first,) = connection.execute("SELECT min(position) FROM eosdb_journal").fetchone()
    last = journal.last_position(connection)
    for after in range((first or 1) - 1, last, _POSITIONS):
        rows = connection.execute(query, (after, after + _POSITIONS))
        for topic, is_of_one, size, completed in rows:
            sums[topic] += size
            of_transactions += size * is_of_one
            transactions += completed
        on_progress(min(after + _POSITIONS, last) / last)
    factor = journal_bytes / max(sums.total(), 1)
    return (
        transactions,
        of_transactions * factor,
        {topic: size * factor for topic, size in sums.items()},
    )


def _topics(
    connection: sqlite3.Connection,
    journal_bytes: dict[str | None, float],
    may_see: Callable[[str, str], bool],
) -> Iterable[TopicStorage]:
    sums: dict[str, tuple[int, int]] = {}
    for partition in partition_rows.read_all(connection):
        # Every offset from `whole` on has a row, so these rows need not be counted.
        whole = max(partition.log_start_offset, partition.clean_offset)
        (below,) = connection.execute(_BELOW, (partition.partition_id, whole)).fetchone()
        records, content = sums.get(partition.topic, (0, 0))
        sums[partition.topic] = (
            records + below + partition.log_end_offset - whole,
            content + partition.size_bytes,
        )
    for topic, (records, content) in sums.items():
        if may_see("topic", topic):
            yield TopicStorage(topic, records, content, round(journal_bytes.get(topic, 0.0)))
