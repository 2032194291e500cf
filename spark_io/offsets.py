"""How far a stream is in each partition, and its form in Spark's checkpoint.

The form is the Kafka connector's, `{"topic": {"0": "23@MARK"}}`, and of a fleet one such object by file.
Behind each offset stands the mark of the file's history when it was told; earlier versions wrote none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eosdb import TopicPartition

_AT: Final = "@"

Place = tuple[str, TopicPartition]
"""A partition in a file."""


class Stand(NamedTuple):
    """An offset, and the mark of the file it is of; None when that is not known."""

    offset: int
    mark: str | None


Stands = Mapping[Place, Stand]


def numbers(stands: Stands) -> dict[Place, int]:
    return {place: stand.offset for place, stand in stands.items()}


def marks(*several: Stands) -> dict[str, set[str]]:
    """The marks there are, by file."""
    found: dict[str, set[str]] = {}
    for stands in several:
        for (path, _), stand in stands.items():
            if stand.mark is not None:
                found.setdefault(path, set()).add(stand.mark)
    return found


def moved(before: Stands, offsets: Mapping[Place, int], newest: Mapping[str, str]) -> Stands:
    """The offsets with the newest mark of their file, and unchanged where a stream stays where it is: other
    offsets are a new micro-batch to Spark."""
    return {
        place: before[place]
        if place in before and before[place].offset == offset
        else Stand(offset, newest.get(place[0]))
        for place, offset in offsets.items()
    }


def told(stands: Stands, *, is_fleet: bool) -> dict[str, Any]:
    """As Spark is told."""
    by_file: dict[str, dict[str, dict[str, int | str]]] = {}
    for (path, tp), (offset, mark) in sorted(stands.items()):
        value = offset if mark is None else f"{offset}{_AT}{mark}"
        by_file.setdefault(path, {}).setdefault(tp.topic, {})[str(tp.partition)] = value
    return by_file if is_fleet else dict(next(iter(by_file.values()), {}))


def parse(told_: Mapping[str, Any], only_path: str | None) -> dict[Place, Stand]:
    """What Spark was told; `only_path` is the file's where there is just one."""
    by_file = told_ if only_path is None else {only_path: told_}
    return {
        (path, TopicPartition(topic, int(partition))): stand(value)
        for path, topics in by_file.items()
        for topic, found in topics.items()
        for partition, value in found.items()
    }


def stand(value: int | str) -> Stand:
    """Raises ValueError for what is no offset."""
    offset, _, mark = str(value).partition(_AT)
    return Stand(int(offset), mark or None)
