"""Plans the reads of the tasks: ranges of offsets, fixed in one snapshot of each file.

Below the last stable offset a range never changes, so late tasks read the same records as early ones. Each
task costs Spark some 50 ms, so one task reads several small ranges. The columns are those of Spark's Kafka
connector, and some that only eosdb has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import eosdb
from eosdb import EARLIEST, LATEST, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.model.notices import catalog
from eosdb.spark_io.planning import files
from eosdb.spark_io.planning.cut import Cut, FileState, Lens, State, other_file, other_topic
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.known_files import in_parallel
from eosdb.spark_io.planning.offsets import ONLY
from eosdb.spark_io.planning.options import Limit, ReadOptions, boolean

KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
TYPES: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "producerId": "bigint",
    "producerEpoch": "int",
    "sequence": "int",
    "source_file": "string",
}
"""The SQL type of every possible column; `eosdb.integrations.arrow` has the Arrow types."""


def chosen(options: Mapping[str, str], *, is_fleet: bool) -> tuple[str, ...]:
    """The requested columns, from option `columns` or by the connector's rules. Raises SparkOptionError."""
    given = {name.lower(): value for name, value in options.items()}
    if (text := given.get("columns")) is not None:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        check(names)
        return names
    headers = ("headers",) if boolean(given, "includeheaders", default=False) else ()
    with_file = boolean(given, "includesourcefile", default=is_fleet)
    return (*KAFKA, *headers, *(("source_file",) if with_file else ()))


def check(names: Sequence[str]) -> None:
    """Raises SparkOptionError for names that are not columns."""
    unknown = [name for name in names if name not in TYPES]
    if unknown or not names or len(set(names)) < len(names):
        raise SparkOptionError(
            f"columns: got {', '.join(names) or 'none'}, expected different ones of {', '.join(TYPES)}"
        )


def sql_schema(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {TYPES[name]}" for name in names)


class Range(NamedTuple):
    """Offsets [start, end) of a partition of a file; `mark` and `topic_id` identify the file's history
    and the topic at planning time (decisions/0057)."""

    path: str
    topic: str
    partition: int
    start: int
    end: int
    mark: str | None = None
    topic_id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def batch(request: files.Given, options: ReadOptions) -> list[Range]:
    """Plan a batch query. Raises SparkOptionError for offsets outside a log."""
    cut = limits_cut(Lens(request, options), options)
    by_file = in_parallel(lambda file: _ranges(file, options), list(cut.files.values()))
    return [range_ for ranges in by_file for range_ in ranges]


def limits_cut(lens: Lens, options: ReadOptions) -> Cut:
    """Take a cut, and check the starting and ending offsets of the options against it. Raises
    SparkOptionError for missing partitions, as Kafka's connector does, and for offsets from a checkpoint
    that belong to another file or topic."""
    limits = {"starting": options.start, "ending": options.end}
    marks = {m.mark for limit in limits.values() for m in limit.marked.values() if m.mark}
    cut = lens.cut(lambda _: marks)
    there = {tp for file in cut.files.values() for tp in file.states}
    for side, limit in limits.items():
        for by, offsets in (("", limit.offsets), ("ByTimestamp", limit.timestamps)):
            named = {TopicPartition(topic, p) for topic, of in (offsets or {}).items() for p in of}
            if (missing := named - there) and not cut.skipped:
                raise SparkOptionError(
                    f"option {side}Offsets{by}: {', '.join(map(str, sorted(missing)))} cannot be "
                    "read: there is no such topic or partition among those that are subscribed to"
                )
        if ONLY in cut.files:
            _check_marked(cut.files[ONLY], f"option {side}Offsets", limit)
    return cut


def _check_marked(file: FileState, option: str, limit: Limit) -> None:
    for tp, marked in limit.marked.items():
        if (why := other_file(tp, marked, file) or other_topic(tp, marked, file)) is not None:
            raise SparkOptionError(
                f"{option}: offset {marked.offset} of {tp} is not of {file.path}: {why}. If it is "
                "meant for this file, give the number without a mark"
            )


def _ranges(file: FileState, options: ReadOptions) -> list[Range]:
    starts = positions(file, options.start, options, at_end=False)
    ends = positions(file, options.end, options, at_end=True)
    for tp in file.states:
        if starts[tp] > ends[tp]:
            raise SparkOptionError(
                f"{file.path}, {tp}: reading would begin at {starts[tp]}, behind its end {ends[tp]}"
            )
    return [range_of(file, tp, starts[tp], ends[tp]) for tp in file.states]


def range_of(file: FileState, tp: TopicPartition, start: int, end: int) -> Range:
    return Range(file.path, *tp, start, end, file.mark, file.topic_ids.get(tp.topic))


def positions(
    file: FileState, limit: Limit, options: ReadOptions, *, at_end: bool
) -> dict[TopicPartition, int]:
    """Resolve the limit to an offset of each partition. Opens the file only if the limit is a time."""
    limits = {tp: _asked(limit, tp) for tp in file.states}
    timed: dict[TopicPartition, int] = {}
    if limit.timestamp is not None or limit.timestamps is not None:
        timed = {tp: time_ms for tp, time_ms in limits.items() if time_ms is not None}
    resolved = {
        tp: _offset(file.path, tp, limits[tp], state, options, at_end=at_end)
        for tp, state in file.states.items()
        if tp not in timed
    }
    if timed:
        with files.connect(file.path) as db:
            for tp, time_ms in timed.items():
                resolved[tp] = _at_time(db, tp, time_ms, file.states[tp], options, at_end=at_end)
    return resolved


def split(ranges: Iterable[Range], options: ReadOptions) -> list[tuple[Range, ...]]:
    """Distribute the ranges over tasks of about equal size, by splitting large ranges and combining small
    ones. The ranges of a file are adjacent, so that a task opens it once."""
    wanted = sorted((range_ for range_ in ranges if range_.size), key=attrgetter("path"))
    total = sum(range_.size for range_ in wanted)
    tasks = -(-total // options.rows_per_task)
    if tasks > 1:
        # Use a multiple of the cores: the driver's, because the executors' are not known here.
        cores = os.cpu_count() or 1
        tasks = -(-tasks // cores) * cores
    tasks = max(tasks, options.min_partitions or 1)
    most = max(-(-total // tasks), 1)
    pieces = [
        range_._replace(start=start, end=min(start + most, range_.end))
        for range_ in wanted
        for start in range(range_.start, range_.end, most)
    ]
    packs: list[list[Range]] = [[]]
    filled = 0
    for piece in pieces:
        if filled and filled + piece.size > most * 1.1:
            packs.append([])
            filled = 0
        packs[-1].append(piece)
        filled += piece.size
    return [tuple(pack) for pack in packs if pack]


def _asked(limit: Limit, tp: TopicPartition) -> int | None:
    if limit.timestamp is not None:
        return limit.timestamp
    by_partition = limit.timestamps if limit.timestamps is not None else limit.offsets
    if by_partition is None:
        return limit.special
    return by_partition.get(tp.topic, {}).get(tp.partition)


def _offset(
    path: str,
    tp: TopicPartition,
    limit: int | None,
    state: State,
    options: ReadOptions,
    *,
    at_end: bool,
) -> int:
    start = state.offsets.log_start_offset
    if limit is None:
        # Unlike in Kafka's connector, a partition may be omitted; the default is its start or its end.
        return state.end if at_end else start
    if limit in (EARLIEST, LATEST):
        return start if limit == EARLIEST else state.end
    low, high = start, state.offsets.log_end_offset
    if options.isolation_level == "read_committed":
        high = state.offsets.last_stable_offset
    if low <= limit <= high:
        return limit
    what = f"{path}, {tp}: offset {limit} cannot be read, the log goes from {low} to {high}"
    if options.fail_on_data_loss:
        raise SparkOptionError(f"{what}; set failOnDataLoss=false to read the rest")
    catalog.LOSS_ACCEPTED.say(loss=what)
    return min(max(limit, low), high)


def _at_time(
    db: eosdb.Database,
    tp: TopicPartition,
    time_ms: int,
    state: State,
    options: ReadOptions,
    *,
    at_end: bool,
) -> int:
    # Ends and starts are resolved alike, so that consecutive time ranges neither overlap nor leave gaps.
    first = Tools(db.admin).first_record_at(tp, time_ms, isolation_level=options.isolation_level)
    if first is not None:
        return min(first.offset, state.end)
    if at_end or options.late_start_is_latest:
        return state.end
    raise SparkOptionError(
        f"{db.path}, {tp}: there is no record at or after {time_ms}; set "
        "startingOffsetsByTimestampStrategy=latest to begin at the end"
    )
