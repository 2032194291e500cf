"""Files that are published in object storage: there a path is a URL, such as `s3://bucket/fleet/ID`.

The driver plans by what a snapshot says of itself, and downloads nothing; a task fetches the snapshot into
the cache of its host, and reads the copy there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import eosdb
from eosdb.admin.summary import FileSummary
from eosdb.integrations import publishing


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether it is a URL; `file:` is what Spark prepends to paths."""
    text = os.fspath(path)
    return publishing.is_url(text) and not text.startswith("file:")


def look(path: str, marks_of: Callable[[str], Iterable[str]]) -> FileSummary:
    """What the latest snapshot says, as `summary.look` does of a local file. Raises StorageError,
    CorruptDatabaseError and ConfigError."""
    (one,) = publishing.published(path)
    found = one.manifest
    # The snapshot knows the marks of those just before it; of others the file must be asked.
    unknown = set(marks_of(found.file_id)) - {found.mark, *found.marks}
    departures = {}
    if unknown:
        with connect(path) as db:
            for mark in unknown:
                if (why := db.admin.history_departure(mark)) is not None:
                    departures[mark] = why
    return FileSummary(found.file_id, found.position, found.mark, found.partitions, departures, {})


def connect(path: str) -> eosdb.Database:
    """A file to read, fetched first if it is published elsewhere."""
    return eosdb.connect(publishing.fetch(path) if is_remote(path) else path, read_only=True)
