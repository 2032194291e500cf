"""From the options to what the tasks read: ranges of offsets, pinned in one snapshot of each file.

Below the last stable offset a range never changes, so tasks that run late read the same as early ones. A
task costs Spark some 50 ms whatever it does, so small ranges share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import eosdb
from eosdb import EARLIEST, LATEST, PartitionOffsets, TopicPartition

from .errors import SparkOptionError
from .options import Limit, ReadOptions


class State(NamedTuple):
    """Where a partition begins and ends, and how far it is read by default: only so far that no transaction
    is seen in part, not even across partitions."""

    offsets: PartitionOffsets
    end: int


class FileState(NamedTuple):
    """Every wanted partition of a file at one instant, and a mark that identifies its history. `departures`
    gives the reason for marks that are not part of this file's history."""

    states: dict[TopicPartition, State]
    mark: str
    departures: dict[str, str]


Cut = dict[str, FileState]
"""The files, by path."""


class Range(NamedTuple):
    """Offsets [start, end) of one partition in one file."""

    path: str
    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def cut(
    paths: Iterable[str],
    options: ReadOptions,
    marks: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> Cut:
    """`marks` are the remembered marks of the files, by path.

    Raises SparkOptionError if a named topic or partition is in none of the files."""
    found: Cut = {}
    for path in paths:
        with eosdb.connect(path, read_only=True) as db:
            departures = {
                mark: why
                for mark in marks.get(path, ())
                if (why := db.admin.history_departure(mark)) is not None
            }
            whole = db.admin.consistent_cut()
            mark = db.admin.history_mark()
        states = {
            tp: State(offsets, end if options.read_committed else offsets.log_end_offset)
            for tp, (offsets, end) in whole.items()
            if options.wants(tp)
        }
        found[path] = FileState(states, mark, departures)
    _check_named({tp for file in found.values() for tp in file.states}, options)
    return found


def batch(paths: Iterable[str], options: ReadOptions) -> list[Range]:
    """The ranges a batch reads. Raises SparkOptionError for offsets outside a log."""
    ranges = []
    for path, (states, *_) in cut(paths, options).items():
        starts = positions(path, states, options.start, options, at_end=False)
        ends = positions(path, states, options.end, options, at_end=True)
        for tp in states:
            if starts[tp] > ends[tp]:
                raise SparkOptionError(
                    f"{path}, {tp}: reading would begin at {starts[tp]}, behind its end {ends[tp]}"
                )
            ranges.append(Range(path, *tp, starts[tp], ends[tp]))
    return ranges


def positions(
    path: str,
    states: Mapping[TopicPartition, State],
    limit: Limit,
    options: ReadOptions,
    *,
    at_end: bool,
) -> dict[TopicPartition, int]:
    """The limit as an offset of each partition."""
    by_time = limit.timestamp is not None or limit.timestamps is not None
    found = {}
    with eosdb.connect(path, read_only=True) as db:
        for tp, state in states.items():
            asked = _asked(limit, tp)
            if by_time and asked is not None:
                found[tp] = _at_time(db, tp, asked, state, options, at_end=at_end)
            else:
                found[tp] = _offset(path, tp, asked, state, options, at_end=at_end)
    return found


def split(ranges: Iterable[Range], options: ReadOptions) -> list[tuple[Range, ...]]:
    """What each task reads: large ranges are cut and small ones combined, about equal amounts for each."""
    wanted = [range_ for range_ in ranges if range_.size]
    total = sum(range_.size for range_ in wanted)
    tasks = -(-total // options.rows_per_task)
    if tasks > 1:
        # As many for each core as for the others, as far as the driver's tell.
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
    asked: int | None,
    state: State,
    options: ReadOptions,
    *,
    at_end: bool,
) -> int:
    start = state.offsets.log_start_offset
    if asked is None:
        # Kafka's connector requires every partition; here those not named begin and end as usual.
        return state.end if at_end else start
    if asked in (EARLIEST, LATEST):
        return start if asked == EARLIEST else state.end
    low, high = start, state.offsets.log_end_offset
    if options.read_committed:
        high = state.offsets.last_stable_offset
    if low <= asked <= high:
        return asked
    if options.fail_on_data_loss:
        raise SparkOptionError(
            f"{path}, {tp}: offset {asked} cannot be read, the log goes from {low} to {high}; set "
            "failOnDataLoss=false to read what there is"
        )
    return min(max(asked, low), high)


def _at_time(
    db: eosdb.Database,
    tp: TopicPartition,
    time_ms: int,
    state: State,
    options: ReadOptions,
    *,
    at_end: bool,
) -> int:
    # An end is found as a start is, so that times cut a log into parts that do not overlap.
    found = db.admin.first_record_at(tp, time_ms, isolation_level=options.isolation_level)
    if found is not None:
        return min(found.offset, state.end)
    if at_end or options.late_start_is_latest:
        return state.end
    raise SparkOptionError(
        f"{db.path}, {tp}: there is no record at or after {time_ms}; set "
        "startingOffsetsByTimestampStrategy=latest to begin at the end"
    )


def _check_named(found: set[TopicPartition], options: ReadOptions) -> None:
    topics = {tp.topic for tp in found}
    missing = sorted(
        {str(tp) for tp in (options.assigned or ()) if tp not in found}
        | {topic for topic in (options.topics or ()) if topic not in topics}
    )
    if missing:
        raise SparkOptionError(f"there is no {', '.join(missing)} in any of the files")
