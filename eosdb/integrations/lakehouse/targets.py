"""What every format has: where data files go, and a commit that takes them and the progress together."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from eosdb.store.schema.new_file import sync_folder

from .progress import Numbers

COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "source_file",
)  # fmt: skip
"""Of the rows, in every format; with `day`, the UTC day of the timestamp, where that is a column."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished Parquet file of one topic and one UTC day. `path` is as the target named it; `least` and
    `most` are of the numeric columns."""

    path: str
    topic: str
    day: str
    rows: int
    size_bytes: int
    least: Mapping[str, int]
    most: Mapping[str, int]


class Target(Protocol):
    """A table. What is created becomes part of it by `commit`, or not at all."""

    columns: Sequence[str]
    """Of the data files."""

    def load(self, names: Collection[str]) -> Numbers:
        """Make the table if it is not there; what it remembers under the names. Raises ConfigError for a
        table that is not such a one, StorageError."""

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        """A new data file: its path, and where to write it. What is closed is durable."""

    def commit(
        self,
        files: Sequence[DataFile],
        before: Numbers,
        after: Numbers,
        about: Mapping[str, object],
    ) -> bool:
        """Add the files and remember `after`, at once, if the table still remembers `before`: if not,
        another export was first, nothing has happened, and the answer is False. `about` is for people who
        read the table's history. Raises StorageError; the outcome is unknown then."""

    def remove(self, path: str) -> None:
        """Remove a data file that has not been committed."""

    def close(self) -> None: ...


class SyncedFile(io.FileIO):
    """A new file whose content is durable once it is closed; its name needs `sync_folders`."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        super().__init__(path, "x")

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
        super().close()


def sync_folders(root: str, paths: Iterable[str]) -> None:
    """Make the names of the files durable, and of all folders between the root and them."""
    folders = {root}
    for path in paths:
        while (path := os.path.dirname(path)).startswith(root + os.sep):
            folders.add(path)
    for folder in folders:
        sync_folder(os.path.join(folder, "x"))


def sync_file(path: str) -> None:
    """Make a file that somebody else wrote durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path)


def local_path(uri: str) -> str | None:
    """The path of a URI that names a file on this machine; None for others."""
    if "://" not in uri and not uri.startswith("file:"):
        return os.path.abspath(uri)
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else None


def one_line(error: Exception) -> str:
    """What a library says in colours over several lines."""
    return (
        " ".join(re.sub(r"\x1b\[[0-9;]*m|\u21b3", "", str(error)).split()) or type(error).__name__
    )
