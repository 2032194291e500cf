"""Files published in object storage, whose path is a URL such as `s3://bucket/fleet/ID`.

The driver plans by the manifest of the latest snapshot and downloads no data. A task fetches the snapshot
into the cache of its host, and reads it there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import eosdb
from eosdb.admin.summary import FileSummary
from eosdb.integrations import publishing


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether the path is a URL other than `file:`, which Spark prepends to local paths."""
    text = os.fspath(path)
    return publishing.is_url(text) and not text.startswith("file:")


def look(path: str, marks_of: Callable[[str], Iterable[str]]) -> FileSummary:
    """Return the summary of the latest snapshot, like `summary.look` for a local file. Raises StorageError,
    CorruptDatabaseError and ConfigError."""
    (published,) = publishing.published(path)
    manifest = published.manifest
    # The manifest has the marks of the preceding snapshots; older ones need the file.
    unknown = set(marks_of(manifest.file_id)) - {manifest.mark, *manifest.marks}
    departures = {}
    if unknown:
        with connect(path) as db:
            for mark in unknown:
                if (why := db.admin._history_departure(mark)) is not None:
                    departures[mark] = why
    return FileSummary(
        manifest.file_id, manifest.position, manifest.mark, manifest.partitions, departures, {}
    )


def connect(path: str) -> eosdb.Database:
    """Open a file read-only; fetch it first if it is remote."""
    return eosdb.connect(publishing.fetch(path) if is_remote(path) else path, read_only=True)
