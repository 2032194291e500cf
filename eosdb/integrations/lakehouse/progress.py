"""The progress of exports, and the ranges of the next export: pure decisions.

A target stores named numbers, the form of Delta's application transactions. For each source file: the
next offset of every partition, and the mark of the file's history at the last export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from eosdb.errors import ConfigError, IllegalStateError, OffsetOutOfRangeError
from eosdb.model.values import PartitionOffsets, TopicPartition

Numbers = Mapping[str, int]
"""The progress that a target stores, by name; all numbers fit into 64 bits."""
NumbersByFile = Mapping[str, Numbers]
"""The same, by file id; of two files in the same place the newer one comes first."""

_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Source:
    """The state of a file in one snapshot. `mark` is that of its history (`db.admin.history_mark`),
    `place` its host and path. A recreated topic has a new id in `topic_ids`. Up to `ends`, each partition
    can be read without a part of a transaction."""

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
class Range:
    """The offsets [start, end) of a partition."""

    topic_partition: TopicPartition
    start: int
    end: int


def flat(by_file: NumbersByFile) -> dict[str, int]:
    return {name: it[name] for it in reversed([*by_file.values()]) for name in it}


def check_topics(source: Source, topics: Collection[str] | None) -> None:
    """Raises ConfigError for topics that do not exist."""
    if missing := sorted(set(topics or ()) - set(source.topic_ids)):
        raise ConfigError(
            f"{source.path} has no topic {', '.join(missing)}, expected of "
            f"{', '.join(sorted(source.topic_ids)) or 'none'}"
        )


def known_mark(source: Source, known: Numbers) -> str | None:
    """The mark of the file's history at its last export; None before the first."""
    position = known.get(f"{source.file_id}:position")
    if position is None:
        return None
    digest = known[f"{source.file_id}:digest"].to_bytes(_DIGEST_BYTES, signed=True).hex()
    return f"{source.file_id}.{position}.{digest}"


def ranges(
    source: Source,
    known: Numbers,
    departure: str | None,
    topics: Collection[str] | None,
    *,
    allow_data_loss: bool,
) -> list[Range]:
    """The ranges that are new since the last export, of the given topics or of all. `departure` is the
    difference from the exported history; None without one. Raises IllegalStateError if the file or its
    history is not the exported one, and OffsetOutOfRangeError if unexported records were removed, unless
    `allow_data_loss`."""
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
                f"Allow data loss to go on there (--allow-data-loss)"
            )
        if (start := max(start, first)) < end:
            new.append(Range(tp, start, end))
    return new


def after(source: Source, read: Collection[Range]) -> dict[str, int]:
    _, position, digest = source.mark.split(".")
    return {
        **{source.name(it.topic_partition): it.end for it in read},
        f"{source.file_id}:position": int(position),
        f"{source.file_id}:digest": int.from_bytes(bytes.fromhex(digest), signed=True),
        f"place:{source.place}": number_of(source.file_id),
    }


def _check_place(source: Source, known: Numbers, *, allow_data_loss: bool) -> None:
    before = known.get(f"place:{source.place}", number_of(source.file_id))
    is_known = f"{source.file_id}:position" in known
    if not is_known and before != number_of(source.file_id) and not allow_data_loss:
        raise IllegalStateError(
            f"{source.path} was replaced: the target has records of another file that was there. A "
            "restored copy has the same records, so export it into a new target; if this is a new file, "
            "allow data loss (--allow-data-loss), and it is exported from its beginning"
        )


def number_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES], signed=True)
