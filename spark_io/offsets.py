"""The position of a stream in each partition, and its form in Spark's checkpoint.

The form is the Kafka connector's, `{"topic": {"0": "23@MARK"}}`; for a fleet, one such object per file.
Each offset is followed by the mark of the file's history at that time; earlier versions wrote none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eosdb import TopicPartition

_AT: Final = "@"

Place = tuple[str, TopicPartition]
"""A partition in a file."""


class MarkedOffset(NamedTuple):
    """An offset, and the mark of the file it belongs to; None if that is not known."""

    offset: int
    mark: str | None


MarkedOffsets = Mapping[Place, MarkedOffset]


def numbers(offsets: MarkedOffsets) -> dict[Place, int]:
    return {place: marked.offset for place, marked in offsets.items()}


def marks(*several: MarkedOffsets) -> dict[str, set[str]]:
    """The known marks, by file."""
    found: dict[str, set[str]] = {}
    for offsets in several:
        for (path, _), marked in offsets.items():
            if marked.mark is not None:
                found.setdefault(path, set()).add(marked.mark)
    return found


def moved(
    before: MarkedOffsets, offsets: Mapping[Place, int], newest: Mapping[str, str]
) -> MarkedOffsets:
    """The offsets with the newest mark of their file, but unchanged where a stream has not moved: different
    offsets are a new micro-batch to Spark."""
    return {
        place: before[place]
        if place in before and before[place].offset == offset
        else MarkedOffset(offset, newest.get(place[0]))
        for place, offset in offsets.items()
    }


def to_json(offsets: MarkedOffsets, *, is_fleet: bool) -> dict[str, Any]:
    """The JSON object that Spark stores."""
    by_file: dict[str, dict[str, dict[str, int | str]]] = {}
    for (path, tp), (offset, mark) in sorted(offsets.items()):
        value = offset if mark is None else f"{offset}{_AT}{mark}"
        by_file.setdefault(path, {}).setdefault(tp.topic, {})[str(tp.partition)] = value
    return by_file if is_fleet else dict(next(iter(by_file.values()), {}))


def parse(given: Mapping[str, Any], only_path: str | None) -> dict[Place, MarkedOffset]:
    """Parse the JSON object that Spark stored; `only_path` is the path if there is just one file."""
    by_file = given if only_path is None else {only_path: given}
    return {
        (path, TopicPartition(topic, int(partition))): parse_offset(value)
        for path, topics in by_file.items()
        for topic, found in topics.items()
        for partition, value in found.items()
    }


def parse_offset(value: int | str) -> MarkedOffset:
    """Raises ValueError unless it is an offset."""
    offset, _, mark = str(value).partition(_AT)
    return MarkedOffset(int(offset), mark or None)
