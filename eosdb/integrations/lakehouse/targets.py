"""The interface of all table formats: creating data files, and an atomic commit of files and progress."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from eosdb.integrations.lakehouse.progress import Numbers, NumbersByFile
from eosdb.store.schema.new_file import sync_folder
from eosdb.system.road import road

COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "source_file",
)  # fmt: skip
"""The columns of the rows in all formats; some formats add `day`, the UTC day of the timestamp."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished Parquet file of one topic and one UTC day. `path` comes from `Target.create`; `least` and
    `most` are the bounds of the numeric columns."""

    path: str
    topic: str
    day: str
    rows: int
    size_bytes: int
    least: Mapping[str, int]
    most: Mapping[str, int]


class Target(Protocol):
    """A table. Created data files become part of it only by `commit`."""

    columns: Sequence[str]
    """The columns of the data files."""

    def load(self) -> Numbers:
        """Create the table if it does not exist, and return all stored numbers. Raises ConfigError for a
        table with other columns or partitions, and StorageError."""

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        """Create a data file. Returns its path and the open file, which is durable when closed."""

    def commit(
        self,
        files: Sequence[DataFile],
        before: Mapping[str, int | None],
        after: NumbersByFile,
        about: Mapping[str, object],
    ) -> bool:
        """Atomically add the files and store `after`, if the numbers in `before` are still stored.
        Otherwise another export committed first: nothing changes, and False is returned. `about`
        describes the export in the table's history. Raises StorageError; then the outcome is unknown."""

    def remove(self, path: str) -> None:
        """Remove a data file that was not committed."""

    def close(self) -> None: ...


class SyncedFile(io.FileIO):
    """A new file whose content is durable once it is closed; its name needs `sync_folders`."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        super().__init__(path, "x")

    def close(self) -> None:
        if not self.closed:
            road.sync(self.fileno())
        super().close()


def sync_folders(root: str, paths: Iterable[str]) -> None:
    """Make the names of the files durable, and those of all folders between `root` and the files."""
    folders = {root}
    for path in paths:
        while (path := os.path.dirname(path)).startswith(root + os.sep):
            folders.add(path)
    for folder in folders:
        sync_folder(os.path.join(folder, "x"))


def sync_file(path: str) -> None:
    """Make a file that another library wrote durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        road.sync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path)


def local_path(uri: str) -> str | None:
    """The local path of a URI of a file on this machine; None for other URIs."""
    if "://" not in uri and not uri.startswith("file:"):
        return os.path.abspath(uri)
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else None


def one_line(error: Exception) -> str:
    return (
        " ".join(re.sub(r"\x1b\[[0-9;]*m|\u21b3", "", str(error)).split()) or type(error).__name__
    )
