"""The interface of all table formats: creating data files, and an atomic commit of files and progress.

A target stores the progress as named numbers, because Delta's application transactions can store nothing
else: for each source file the next offset of every partition, and the mark of the file's history at the
last export. They determine the ranges of the next export.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from eosdb.errors import ConfigError, IllegalStateError, OffsetOutOfRangeError
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.store.schema.new_file import sync_folder
from eosdb.system.road import road, sync_path

Numbers = Mapping[str, int]
"""The progress that a target stores, by name; all numbers fit into 64 bits."""
NumbersByFile = Mapping[str, Numbers]
"""The same progress by file id. Of two files at the same path, the newer one comes first."""

_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ExportSource:
    """The state of a file in one snapshot. `mark` identifies its history, `place` its host and path. A
    recreated topic has a new id in `topic_ids`. No transaction extends across `ends`."""

    path: str
    place: str
    mark: str
    topic_ids: Mapping[str, str]
    partitions: Mapping[TopicPartition, PartitionOffsets]
    ends: Mapping[TopicPartition, int]

    @property
    def file_id(self) -> str:
        return self.mark.partition(".")[0]

    def name(self, tp: TopicPartition) -> str:
        return f"{self.file_id}:{self.topic_ids[tp.topic]}/{tp.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of a partition."""

    topic_partition: TopicPartition
    start: int
    end: int


def flat(by_file: NumbersByFile) -> dict[str, int]:
    return {name: it[name] for it in reversed([*by_file.values()]) for name in it}


def check_topics(source: ExportSource, topics: Collection[str] | None) -> None:
    """Raises ConfigError for topics that do not exist."""
    names = ", ".join(sorted(source.topic_ids)) or "none"
    if missing := sorted(set(topics or ()) - set(source.topic_ids)):
        raise ConfigError(f"{source.path} has no topic {', '.join(missing)}; its topics: {names}")


def known_mark(source: ExportSource, known: Numbers) -> str | None:
    """The mark of the file's history at its last export; None before the first."""
    position = known.get(f"{source.file_id}:position")
    if position is None:
        return None
    digest = known[f"{source.file_id}:digest"].to_bytes(_DIGEST_BYTES, signed=True).hex()
    return f"{source.file_id}.{position}.{digest}"


def ranges(
    source: ExportSource,
    known: Numbers,
    departure: str | None,
    topics: Collection[str] | None,
    *,
    allow_data_loss: bool,
) -> list[OffsetRange]:
    """The ranges that are new since the last export, of the given topics or of all. `departure` describes
    how the file's history differs from the exported one; None if it does not. Raises IllegalStateError if
    it differs or the file was replaced, and OffsetOutOfRangeError if unexported records were removed,
    unless `allow_data_loss`."""
    if departure is not None:
        raise IllegalStateError(
            f"{source.path}: {departure}. The target holds records of the newer history: export into a new "
            "target, or put the newest file back"
        )
    _check_place(source, known, allow_data_loss=allow_data_loss)
    new = []
    for tp, offsets in sorted(source.partitions.items()):
        if topics is not None and tp.topic not in topics:
            continue
        first, end = offsets.log_start_offset, source.ends[tp]
        start = known.get(source.name(tp), first)
        if start < first and not allow_data_loss:
            raise OffsetOutOfRangeError(
                f"{source.path}, {tp}: offset {start} is the next to export, the log begins at {first}. "
                "Allow data loss to continue there (--allow-data-loss)"
            )
        if (start := max(start, first)) < end:
            new.append(OffsetRange(tp, start, end))
    return new


def after(source: ExportSource, read: Collection[OffsetRange]) -> dict[str, int]:
    _, position, digest = source.mark.split(".")
    return {
        **{source.name(it.topic_partition): it.end for it in read},
        f"{source.file_id}:position": int(position),
        f"{source.file_id}:digest": int.from_bytes(bytes.fromhex(digest), signed=True),
        f"place:{source.place}": number_of(source.file_id),
    }


def _check_place(source: ExportSource, known: Numbers, *, allow_data_loss: bool) -> None:
    before = known.get(f"place:{source.place}", number_of(source.file_id))
    is_known = f"{source.file_id}:position" in known
    if not is_known and before != number_of(source.file_id) and not allow_data_loss:
        raise IllegalStateError(
            f"{source.path} was replaced: the target has records of another file that was there. A "
            "restored copy has the same records, so export it into a new target; if this is a new file, "
            "allow data loss (--allow-data-loss) to export it from its beginning"
        )


def number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES], signed=True)


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


class Commit(NamedTuple):
    """The files of a commit, and its numbers: `before` must still be stored, `after` will be stored.
    `about` describes the export in the table's history."""

    files: Sequence[DataFile]
    before: Mapping[str, int | None]
    after: NumbersByFile
    about: Mapping[str, object]

    def is_current(self, stored: Numbers) -> bool:
        """Whether the numbers in `before` are still stored."""
        return all(stored.get(name) == self.before.get(name) for name in flat(self.after))


class Target(Protocol):
    """A table. `commit` makes created data files part of it."""

    columns: Sequence[str]
    """The columns of the data files."""

    def load(self) -> Numbers:
        """Create the table if it does not exist, and return all stored numbers. Raises ConfigError for a
        table with other columns or partitions, and StorageError."""

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        """Create a data file. Returns its path and the open file, which is durable when closed."""

    def commit(self, new: Commit) -> bool:
        """Atomically add the files and store the numbers. Returns False, and changes nothing, if another
        export committed first. Raises StorageError if the outcome is unknown."""

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
    """Make the names of the files durable, and the names of all folders between `root` and the files."""
    folders = {root}
    for path in paths:
        while (path := os.path.dirname(path)).startswith(root + os.sep):
            folders.add(path)
    for folder in folders:
        sync_folder(os.path.join(folder, "x"))


def sync_file(path: str) -> None:
    """Make a file that another library wrote durable."""
    sync_path(path)
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
