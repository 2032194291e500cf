"""The position of a stream in each partition, and its form in Spark's checkpoint.

The form is the Kafka connector's, `{"topic": {"0": "23@MARK@TOPIC"}}`. If the request may match several
files, each file has such an object under its id, with its last path: `{"ID": {"@": "PATH", "topic": …}}`.
MARK identifies the file's history at that offset. TOPIC is the topic's id, since a topic may be recreated
under its name (decisions/0057). MARK and TOPIC may be missing, because users may give plain numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eosdb import TopicPartition
from eosdb.admin import summary
from eosdb.model.damage import parsed
from eosdb.spark_io.planning.errors import SparkOptionError

ONLY: Final = ""
"""The key of the file if the request names a single file; its id is then not checked."""
_AT: Final = "@"
_PATH: Final = "@"
"""The key of the file's path in the JSON object. No topic has this name."""

Place = tuple[str, TopicPartition]
"""A partition of a file; the file is given by its id or by `ONLY`."""


class MarkedOffset(NamedTuple):
    """An offset, the mark of its file's history, and the id of its topic; None if unknown."""

    offset: int
    mark: str | None
    topic_id: str | None = None


MarkedOffsets = Mapping[Place, MarkedOffset]


@dataclass(frozen=True, slots=True)
class Positions:
    """The position of a stream in each partition, and the last path of each file, by its key."""

    offsets: MarkedOffsets = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    def without(self, files: Collection[str], topics: Collection[tuple[str, str]]) -> Positions:
        """The positions without some files, given by their keys, and without some topics, given by file key
        and name."""
        if not files and not topics:
            return self
        return Positions(
            {
                (key, tp): marked
                for (key, tp), marked in self.offsets.items()
                if key not in files and (key, tp.topic) not in topics
            },
            {key: path for key, path in self.paths.items() if key not in files},
        )


def numbers(offsets: MarkedOffsets) -> dict[Place, int]:
    return {place: marked.offset for place, marked in offsets.items()}


def marks(*several: MarkedOffsets) -> dict[str, set[str]]:
    by_file: dict[str, set[str]] = {}
    for offsets in several:
        for (key, _), marked in offsets.items():
            if marked.mark is not None:
                by_file.setdefault(key, set()).add(marked.mark)
    return by_file


def moved(
    before: Positions,
    offsets: Mapping[Place, int],
    newest: Mapping[str, str],
    paths: Mapping[str, str],
    topic_ids: Mapping[str, Mapping[str, str]],
) -> Positions:
    """The new positions. A partition that has moved gets the newest mark and path of its file, and its
    topic's id. Other partitions keep theirs, because Spark takes any difference for a new micro-batch."""
    if offsets == numbers(before.offsets):
        return before
    positions: dict[Place, MarkedOffset] = {}
    now_at = dict(before.paths)
    for place, offset in offsets.items():
        last, key = before.offsets.get(place), place[0]
        if last is not None and last.offset == offset:
            positions[place] = last
        else:
            topic_id = topic_ids.get(key, {}).get(place[1].topic)
            positions[place] = MarkedOffset(offset, newest.get(key), topic_id)
            if key in paths:
                now_at[key] = paths[key]
    return Positions(positions, now_at)


def to_json(positions: Positions, *, is_fleet: bool) -> dict[str, Any]:
    by_file: dict[str, dict[str, Any]] = {}
    for (key, tp), marked in sorted(positions.offsets.items(), key=itemgetter(0)):
        topics = by_file.get(key)
        if topics is None:
            topics = by_file[key] = {}
            if is_fleet and key in positions.paths:
                topics[_PATH] = positions.paths[key]
        topics.setdefault(tp.topic, {})[str(tp.partition)] = _text(marked)
    return by_file if is_fleet else dict(by_file.get(ONLY, {}))


def parse(given: Mapping[str, Any], *, is_fleet: bool) -> Positions:
    """Parse Spark's JSON object. Its query may have named one file and this query several, or the reverse.
    Raises SparkOptionError if their file is unknown, or if only they have several files."""
    if is_fleet and _has(given, is_fleet=False):
        given = _by_file(given)
    elif not is_fleet and _has(given, is_fleet=True):
        given = _of_one_file(given)
    by_file = given if is_fleet else {ONLY: given}
    offsets = {
        (key, TopicPartition(topic, int(partition))): parse_offset(value)
        for key, topics in by_file.items()
        for topic, partitions in topics.items()
        if topic != _PATH
        for partition, value in partitions.items()
    }
    return Positions(
        offsets, {key: topics[_PATH] for key, topics in by_file.items() if _PATH in topics}
    )


def _has(given: Mapping[str, Any], *, is_fleet: bool) -> bool:
    return any(
        isinstance(nested, Mapping) == is_fleet
        for topics in given.values()
        for name, nested in topics.items()
        if name != _PATH
    )


def _by_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Put the offsets of one file under its id, which their marks contain."""
    by_file: dict[str, Any] = {}
    for topic, partitions in given.items():
        for partition, value in partitions.items():
            mark = parse_offset(value).mark
            if mark is None:
                raise SparkOptionError(
                    "the checkpoint is of a query that read one file, and does not identify it; this query "
                    "reads several. Give it a new checkpoint, or name the one file"
                )
            of_file = by_file.setdefault(summary.id_in(mark), {})
            of_file.setdefault(topic, {})[partition] = value
    return by_file


def _of_one_file(given: Mapping[str, Any]) -> dict[str, Any]:
    if len(given) > 1:
        raise SparkOptionError(
            f"the checkpoint is of a query that read {len(given)} files, and this query names one. Give "
            "it a new checkpoint, or name the files as before, by a folder or a pattern"
        )
    (topics,) = given.values()
    return {topic: partitions for topic, partitions in topics.items() if topic != _PATH}


def parse_offset(value: int | str) -> MarkedOffset:
    """Parse an offset with its optional mark and topic id. Raises ValueError."""
    offset, mark, topic_id, *_ = [*str(value).split(_AT), "", ""]
    return MarkedOffset(int(offset), mark or None, topic_id or None)


def _text(marked: MarkedOffset) -> int | str:
    offset, *identity = marked
    return _AT.join([str(offset), *filter(None, identity)]) if marked.mark is not None else offset


class OffsetsBehindLatest(NamedTuple):
    """Minimum, maximum and mean over all partitions, as in the metrics of Spark's Kafka source."""

    min: int
    max: int
    avg: float


def offsets_behind_latest(source: Mapping[str, Any]) -> OffsetsBehindLatest:
    """Compute how many offsets each partition of a source was behind when the micro-batch completed.

    `source` is an item of `query.lastProgress["sources"]`, because Python data sources cannot report
    metrics of their own. Without partitions all figures are 0.
    """
    end, latest = (_flat(_parsed(source.get(name))) for name in ("endOffset", "latestOffset"))
    behind = [max(offset - end.get(place, 0), 0) for place, offset in latest.items()]
    if not behind:
        return OffsetsBehindLatest(0, 0, 0.0)
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind))


def _flat(offsets: Any) -> dict[tuple[str, ...], int]:
    if offsets is None:
        return {}
    if not isinstance(offsets, Mapping):
        return {(): parse_offset(offsets).offset}
    return {
        (name, *rest): offset
        for name, nested in offsets.items()
        if not name.startswith("@")  # A key with "@" is not a topic.
        for rest, offset in _flat(nested).items()
    }


def _parsed(offsets: Any) -> Any:
    return parsed(offsets) if isinstance(offsets, str) else offsets
