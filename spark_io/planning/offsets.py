"""The position of a stream in each partition, and its form in Spark's checkpoint.

The form is the Kafka connector's, `{"topic": {"0": "23@MARK@TOPIC"}}`; for a fleet, one such object per
file, under the file's id, with the path where it was: `{"ID": {"@": "PATH", "topic": …}}`. Each offset is
followed by the mark of the file's history at that time, and by the topic's id: a name is not an identity
(decisions/0057). Earlier versions wrote no topic's id, before that no mark, and paths instead of ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eosdb import TopicPartition
from eosdb.admin import summary

ONLY: Final = ""
"""The key of the file of a request for one file, whichever it is today."""
_AT: Final = "@"
_PATH: Final = "@"
"""No topic has this name."""
_SLASH: Final = "/"
"""In every absolute path, and in no id."""

Place = tuple[str, TopicPartition]
"""A partition in a file: the file's id, or `ONLY`, or a path of which the id is not known yet."""


class MarkedOffset(NamedTuple):
    """An offset, and the mark of the file and the id of the topic it belongs to; None if not known."""

    offset: int
    mark: str | None
    topic_id: str | None = None


MarkedOffsets = Mapping[Place, MarkedOffset]


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a stream stands, and by the same keys the path where each file was when it last moved."""

    offsets: MarkedOffsets = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    def without(self, keys: Iterable[str]) -> Positions:
        left_out = frozenset(keys)
        if not left_out:
            return self
        return Positions(
            {place: found for place, found in self.offsets.items() if place[0] not in left_out},
            {key: path for key, path in self.paths.items() if key not in left_out},
        )

    def without_topics(self, topics: Collection[tuple[str, str]]) -> Positions:
        """Each topic by its file's key and its name."""
        if not topics:
            return self
        kept = {
            (key, tp): found
            for (key, tp), found in self.offsets.items()
            if (key, tp.topic) not in topics
        }
        return Positions(kept, self.paths)

    def with_ids(self, ids: Mapping[str, str]) -> Positions:
        """With ids, by path, for files that are known by their path."""
        named = {key: ids[key] for key in self.paths if _SLASH in key and key in ids}
        if not named:
            return self
        return Positions(
            {(named.get(key, key), tp): found for (key, tp), found in self.offsets.items()},
            {named.get(key, key): path for key, path in self.paths.items()},
        )


def numbers(offsets: MarkedOffsets) -> dict[Place, int]:
    return {place: marked.offset for place, marked in offsets.items()}


def marks(*several: MarkedOffsets) -> dict[str, set[str]]:
    """The known marks, by file."""
    found: dict[str, set[str]] = {}
    for offsets in several:
        for (key, _), marked in offsets.items():
            if marked.mark is not None:
                found.setdefault(key, set()).add(marked.mark)
    return found


def moved(
    before: Positions,
    offsets: Mapping[Place, int],
    newest: Mapping[str, str],
    paths: Mapping[str, str],
    topic_ids: Mapping[str, Mapping[str, str]],
) -> Positions:
    """The offsets with the newest mark and path of their file and with their topic's id, but unchanged
    where a stream has not moved: different offsets are a new micro-batch to Spark."""
    if offsets == numbers(before.offsets):
        return before
    found: dict[Place, MarkedOffset] = {}
    now_at = dict(before.paths)
    for place, offset in offsets.items():
        known, key = before.offsets.get(place), place[0]
        if known is not None and known.offset == offset:
            found[place] = known
        else:
            topic_id = topic_ids.get(key, {}).get(place[1].topic)
            found[place] = MarkedOffset(offset, newest.get(key), topic_id)
            if key in paths:
                now_at[key] = paths[key]
    return Positions(found, now_at)


def to_json(positions: Positions, *, is_fleet: bool) -> dict[str, Any]:
    """The JSON object that Spark stores."""
    by_file: dict[str, dict[str, Any]] = {}
    for (key, tp), marked in sorted(positions.offsets.items(), key=itemgetter(0)):
        topics = by_file.get(key)
        if topics is None:
            topics = by_file[key] = {}
            if is_fleet and _SLASH not in key and key in positions.paths:
                topics[_PATH] = positions.paths[key]
        topics.setdefault(tp.topic, {})[str(tp.partition)] = _text(marked)
    return by_file if is_fleet else dict(by_file.get(ONLY, {}))


def parse(given: Mapping[str, Any], *, is_fleet: bool) -> Positions:
    """Parse the JSON object that Spark stored."""
    offsets: dict[Place, MarkedOffset] = {}
    paths: dict[str, str] = {}
    for key, topics in (given if is_fleet else {ONLY: given}).items():
        found = {
            TopicPartition(topic, int(partition)): parse_offset(value)
            for topic, partitions in topics.items()
            if topic != _PATH
            for partition, value in partitions.items()
        }
        file = key
        if is_fleet:
            file = _id_of(key, found.values())
            if _PATH in topics or _SLASH in key:
                paths[file] = topics.get(_PATH, key)
        for tp, marked in found.items():
            place = (file, tp)
            # Copies of one file had a path each.
            if place not in offsets or offsets[place].offset < marked.offset:
                offsets[place] = marked
    return Positions(offsets, paths)


def parse_offset(value: int | str) -> MarkedOffset:
    """Raises ValueError unless it is an offset."""
    offset, mark, topic_id, *_ = [*str(value).split(_AT), "", ""]
    return MarkedOffset(int(offset), mark or None, topic_id or None)


def _text(marked: MarkedOffset) -> int | str:
    offset, *known = marked
    return _AT.join([str(offset), *filter(None, known)]) if marked.mark is not None else offset


def _id_of(key: str, found: Iterable[MarkedOffset]) -> str:
    """The id in the first mark of a file that an earlier version knew by its path."""
    if _SLASH not in key:
        return key
    return next((summary.id_in(marked.mark) for marked in found if marked.mark is not None), key)
