"""Named points at which a crash test may kill the process.

`reach` does nothing unless the environment variable `EOSDB_FAILPOINT` names the point, optionally with the
number of visits to skip (`end_txn.decided:2` dies at the third). SIGKILL then ends the process, so no
handler runs and nothing is flushed. A simulation, which runs several programs in one process, calls
`watched` instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from enum import Enum


class Failpoint(Enum):
    """A point between two steps of an operation that must survive a kill."""

    APPEND_RECORDED = "append.recorded"
    """The event of an append is written, its records are not."""
    APPEND_UNCOMMITTED = "append.uncommitted"
    """All rows of an append are written, the unit is not committed."""
    UNIT_COMMITTED = "unit.committed"
    """A unit is durable, its caller has no answer yet."""
    USER_UNIT_UNCOMMITTED = "user_unit.uncommitted"
    """All writes of a `db.begin()` block are done, the unit is not committed."""
    END_TXN_DECIDED = "end_txn.decided"
    """PrepareCommit or PrepareAbort is durable, no marker is written. A process in which this point or
    MARKER_WRITTEN is armed ends every transaction in two steps."""
    MARKER_WRITTEN = "marker.written"
    """One marker of a transaction is written, others and the completion are not."""
    SNAPSHOT_WRITTEN = "snapshot.written"
    """One partition's snapshot is written, others are not."""
    RETENTION_MOVED = "retention.moved"
    """The log start has moved, the records below it are still there."""
    COMPACTION_CLEANED = "compaction.cleaned"
    """Superseded records are deleted, the unit is not committed."""
    HISTORY_FOLDED = "history.folded"
    """Some events are folded into the baseline's tables, whose position does not say so yet."""
    HISTORY_TRIMMED = "history.trimmed"
    """The folded events are deleted from the journal, the unit is not committed."""
    PAGES_GIVEN_BACK = "pages.given_back"
    """Used pages have been moved to free ones and the file is truncated, the unit is not committed."""
    COPY_WRITTEN = "copy.written"
    """A copy is complete and durable, and does not have its name yet."""
    COMPACT_WRITTEN = "compact.written"
    """The compacted content is in a file beside the database, nothing of it is in the database."""
    COMPACT_COPYING = "compact.copying"
    """Some of its pages are copied over the file's, the unit is not committed."""
    COMPACT_COMMITTED = "compact.committed"
    """All of its pages are copied and committed; the WAL has not been copied into the file."""
    EXTRACT_WRITTEN = "extract.written"
    """eosdb's tables are in a new file, which does not have its final name yet."""
    EXTRACT_LINKED = "extract.linked"
    """The new file has its name, and the tables are in both files."""
    EXTRACT_DROPPED = "extract.dropped"
    """The tables are dropped from the adopted file, the unit is not committed."""
    REBUILD_CLEARED = "rebuild.cleared"
    """The materialized tables are empty, the replay has not begun."""
    MIGRATION_APPLIED = "migration.applied"
    """The revisions have run, the unit is not committed."""
    LIFE_BEGAN = "life.began"
    """All rows of a new life are written, the unit is not committed."""
    CHECKPOINT_DONE = "checkpoint.done"
    """The WAL has been copied into the file, the writer lock is still held."""
    EXPORT_WRITTEN = "export.written"
    """The data files of an export to a lakehouse are durable, its commit has not begun."""
    EXPORT_HALF_VISIBLE = "export.half_visible"
    """An export to Parquet is committed, its files are not yet where readers look."""
    EXPORT_COMMITTED = "export.committed"
    """The commit of an export to a lakehouse is durable, its caller has no answer yet."""
    CHUNK_SENT = "chunk.sent"
    """One chunk of a published snapshot is in object storage, others are not."""
    CHUNKS_SENT = "chunks.sent"
    """All chunks are in object storage, and no manifest names them."""
    SNAPSHOT_SENT = "snapshot.sent"
    """The snapshot is in object storage, and is not the latest yet."""
    SNAPSHOTS_REMOVED = "snapshots.removed"
    """Old snapshots are removed, the chunks that only they named are not."""


_BETWEEN = (Failpoint.END_TXN_DECIDED.value, Failpoint.MARKER_WRITTEN.value)


def _armed() -> tuple[str, int] | None:
    name, _, count = os.environ.get("EOSDB_FAILPOINT", "").partition(":")
    return (Failpoint(name).value, int(count or 0)) if name else None


_target = _armed()
_watcher: Callable[[Failpoint], None] | None = None
_in_steps: Callable[[], bool] | None = None


@contextlib.contextmanager
def watched(
    watcher: Callable[[Failpoint], None], in_steps: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Call `watcher` at every point during the block; its exceptions end the operation there. `in_steps`
    returns whether transactions end in two steps."""
    global _watcher, _in_steps
    before = _watcher, _in_steps
    _watcher, _in_steps = watcher, in_steps
    try:
        yield
    finally:
        _watcher, _in_steps = before


def ends_in_steps() -> bool:
    """Whether transactions must end in two steps, to reach a watched or armed failpoint between them."""
    if _in_steps is not None:
        return _in_steps()
    return _target is not None and _target[0] in _BETWEEN


def reach(point: Failpoint) -> None:
    """Kill the process if this point is armed and its count is used up."""
    global _target
    if _watcher is not None:
        _watcher(point)
    if _target is None or _target[0] != point.value:
        return
    if _target[1] > 0:
        _target = (_target[0], _target[1] - 1)
        return
    os.kill(os.getpid(), signal.SIGKILL)
