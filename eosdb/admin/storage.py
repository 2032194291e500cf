"""Measures what uses the space of a file: tables, indexes, free pages, topics, and an average
transaction.

Reads the whole file once, on a snapshot: about a second for each gigabyte in the page cache, otherwise
as long as the disk takes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from eosdb.model.reports import StoragePart, StorageStats, TopicStorage
from eosdb.model.values import TransactionState
from eosdb.store import space
from eosdb.store.schema import newest

_ROW_OVERHEAD: Final = 6
"""Approximate bytes of a cell besides its columns: their types, the rowid, its place in the page."""
_EXACT: Final = "SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = 1 GROUP BY name"
_COMPLETE: Final = tuple(state.label for state in TransactionState if state.is_complete)


class _Tree(NamedTuple):
    """A table or an index, each of which is a B-tree of pages."""

    name: str
    table: str
    is_index: bool
    columns: tuple[str, ...]
    condition: str
    """The condition of a partial index."""


def read(connection: sqlite3.Connection, may_see: Callable[[str], bool]) -> StorageStats:
    """Measure the file, with the topics that `may_see` allows."""
    trees = _trees(connection)
    try:
        sizes, is_estimate = dict(connection.execute(_EXACT)), False
    except sqlite3.OperationalError:  # SQLite was compiled without dbstat.
        sizes, is_estimate = _estimated(connection, trees), True
    pages = space.pages(connection)
    parts = [
        StoragePart(_kind(tree), tree.name, sizes[tree.name])
        for tree in trees
        if tree.name in sizes
    ]
    free = StoragePart("free", "", pages.free * pages.size)
    accounted = sum(part.bytes for part in (*parts, free))
    other = StoragePart("other", "", pages.total * pages.size - accounted)
    journal = sum(sizes[tree.name] for tree in trees if tree.table == "journal")
    transactions, of_transactions, by_topic = _journal(connection, journal)
    return StorageStats(
        total_bytes=pages.total * pages.size,
        is_estimate=is_estimate,
        parts=tuple(sorted((*parts, free, other), key=lambda part: -part.bytes)),
        topics=tuple(_topics(connection, by_topic, may_see)),
        transactions=transactions,
        bytes_per_transaction=of_transactions / transactions if transactions else 0.0,
    )


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
        return f"{tree.table} index" if tree.is_index else tree.table
    kind = "baseline" if tree.table.startswith(newest.BASELINE_TABLE) else "state"
    return f"{kind} index" if tree.is_index else kind


def _estimated(connection: sqlite3.Connection, trees: Sequence[_Tree]) -> dict[str, int]:
    """Estimate the pages of each tree: one, and a share of the others by its content."""
    contents = {}
    for tree in trees:
        where = f" WHERE {tree.condition}" if tree.condition else ""
        (contents[tree.name],) = connection.execute(
            f"SELECT COALESCE(sum({_content(tree.columns)}), 0) FROM {_quoted(tree.table)}{where}"
        ).fetchone()
    pages = space.pages(connection)
    used = pages.total - pages.free
    beyond = {name: max(content - pages.size, 0) for name, content in contents.items()}
    share = (used - len(trees)) * pages.size / max(sum(beyond.values()), 1)
    return {name: pages.size + int(content * share) for name, content in beyond.items()}


def _content(columns: Iterable[str]) -> str:
    """SQL: the approximate bytes of a row. A number takes fewer bytes than it has digits."""
    lengths = (
        f"CASE typeof({name}) WHEN 'integer' THEN 4 WHEN 'real' THEN 8 WHEN 'null' THEN 0 "
        f"ELSE length(CAST({name} AS BLOB)) END + 1"
        for name in map(_quoted, columns)
    )
    return " + ".join((*lengths, str(_ROW_OVERHEAD)))


def _quoted(name: str) -> str:
    """Quote the name of a user's own table or column."""
    return '"' + name.replace('"', '""') + '"'


def _journal(
    connection: sqlite3.Connection, journal_bytes: int
) -> tuple[int, float, dict[str | None, float]]:
    """Return the number of transactions completed in the journal, the bytes of all their events, and the
    bytes of events by topic (None: of no topic)."""
    content = _content(_names(connection, "table_info", "journal"))
    rows = connection.execute(
        f"SELECT topic, transactional_id IS NOT NULL, sum({content}) FROM journal GROUP BY 1, 2"
    ).fetchall()
    factor = journal_bytes / max(sum(size for _, _, size in rows), 1)
    by_topic: dict[str | None, float] = {}
    for topic, _, size in rows:
        by_topic[topic] = by_topic.get(topic, 0.0) + size * factor
    states = ", ".join("?" * len(_COMPLETE))
    (transactions,) = connection.execute(
        f"SELECT count(*) FROM transaction_history WHERE to_state IN ({states})", _COMPLETE
    ).fetchone()
    return transactions, sum(size for _, is_of_one, size in rows if is_of_one) * factor, by_topic


def _topics(
    connection: sqlite3.Connection,
    journal: dict[str | None, float],
    may_see: Callable[[str], bool],
) -> Iterable[TopicStorage]:
    counts = dict(
        connection.execute("SELECT partition_id, count(*) FROM records GROUP BY partition_id")
    )
    sums: dict[str, tuple[int, int]] = {}
    for partition_id, topic, size in connection.execute(
        "SELECT partition_id, topic, size_bytes FROM partitions ORDER BY topic"
    ):
        records, content = sums.get(topic, (0, 0))
        sums[topic] = records + counts.get(partition_id, 0), content + size
    for topic, (records, content) in sums.items():
        if may_see(topic):
            yield TopicStorage(topic, records, content, round(journal.get(topic, 0.0)))
