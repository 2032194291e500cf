"""The stream reader: micro-batches of committed records, from offsets that Spark stores in its checkpoint.

The checkpoint outlives the file: before an offset is used, the file is checked to be the one that the
offset belongs to, with a history that has only grown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from eosdb import TopicPartition

from . import columns, files, offsets, options, plan, reading
from .errors import SparkOptionError
from .group_progress import GroupProgress
from .offsets import MarkedOffset, MarkedOffsets, Place

_log: Final = logging.getLogger("eosdb.spark_io")
_MOST_OFFSETS: Final = 5_000_000
"""Of a micro-batch, unless maxOffsetsPerTrigger says otherwise: a backfill comes in pieces, each of which
stays when the query is killed. Kafka's connector takes everything at once."""


class StreamTask(InputPartition):
    """What one task of a micro-batch reads."""

    def __init__(self, ranges: tuple[plan.Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, in the driver. A micro-batch contains each transaction whole or not at all,
    unless maxOffsetsPerTrigger, or its default, cuts it shorter."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType) -> None:
        self._names = tuple(schema.fieldNames())
        columns.check(self._names)
        self._given = dict(given)
        self._options = options.parse(given, streaming=True)
        self._is_fleet = files.of_options(given).is_fleet
        self._frozen: dict[Place, int] | None = None
        group_id = self._options.group_id
        self._group = None if group_id is None else GroupProgress(group_id)

    # -- offsets --------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        found: dict[Place, MarkedOffset] = {}
        for path, (states, mark, _) in self._cut().items():
            starts = plan.positions(path, states, self._options.start, self._options, at_end=False)
            found |= {(path, tp): MarkedOffset(offset, mark) for tp, offset in starts.items()}
        return self._to_json(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger or _MOST_OFFSETS)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = self._parsed(start)
        cut = self._cut(known)
        known = self._still_so(known, cut)
        before = offsets.numbers(known)
        if self._group is not None:
            # Everything before the next micro-batch has been written. (Spark's own `commit` comes one
            # batch late, and after the last one not at all.)
            self._group.tell(before)
        newest = self._frozen if self._frozen is not None else _ends(cut)
        if isinstance(limit, ReadMaxRows):
            first = {
                (path, tp): state.offsets.log_start_offset
                for path, file in cut.items()
                for tp, state in file.states.items()
            }
            reached = _limited(before, first, newest, limit.max_rows)
        else:
            reached = {**before, **_not_back(before, newest)}
        return self._to_json(offsets.moved(known, reached, _marks(cut)))

    def reportLatestOffset(self) -> dict[str, Any]:
        cut = self._cut()
        return self._to_json(offsets.moved({}, _ends(cut), _marks(cut)))

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = _ends(self._cut())

    # -- records --------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[StreamTask]:
        before, after = self._parsed(start), self._parsed(end)
        cut = self._cut(before, after)
        # What was planned for a file that is gone is gone; only then it matters where it was to begin.
        after = self._still_so(after, cut)
        before = self._still_so(before, cut)
        ranges = []
        for (path, tp), (stop, _) in sorted(after.items()):
            state = cut[path].states.get(tp) if path in cut else None
            if state is None:
                self._lost(f"{path}, {tp}: the partition is gone")
                continue
            # A partition created since the query began is read from its beginning.
            first = state.offsets.log_start_offset
            begin = before[path, tp].offset if (path, tp) in before else first
            if begin < first and begin < stop:
                self._lost(f"{path}, {tp}: the query stands at {begin}, the log begins at {first}")
                begin = min(first, stop)
            ranges.append(plan.Range(path, *tp, begin, stop))
        return [StreamTask(pack) for pack in plan.split(ranges, self._options) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamTask)
        return reading.batches(
            partition.ranges,
            self._names,
            self._options.isolation_level,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    # -- inside ---------------------------------------------------------------------------------

    def _cut(self, *known: MarkedOffsets) -> plan.Cut:
        """A glob or directory also includes files created since."""
        paths = files.of_options(self._given).paths
        return plan.cut(paths, self._options, offsets.marks(*known))

    def _still_so(self, known: MarkedOffsets, cut: plan.Cut) -> MarkedOffsets:
        """Leave out offsets of files with a different history: those files are read from their beginning,
        if data loss is allowed at all."""
        gone = {}
        for (path, tp), marked in known.items():
            file = cut.get(path)
            why = _departure(tp, marked, file) if file is not None and path not in gone else None
            if why is not None:
                self._lost(
                    f"{path}, {tp}: the checkpoint is at offset {marked.offset}, but {why}. Give the "
                    "query a new checkpoint, or put the newest file back"
                )
                gone[path] = why
        return {place: marked for place, marked in known.items() if place[0] not in gone}

    def _to_json(self, found: MarkedOffsets) -> dict[str, Any]:
        return offsets.to_json(found, is_fleet=self._is_fleet)

    def _parsed(self, given: Mapping[str, Any]) -> MarkedOffsets:
        only = None if self._is_fleet else files.of_options(self._given).paths[0]
        return offsets.parse(given, only)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SparkOptionError(f"{what}. Set failOnDataLoss=false to read what there is")
        _log.warning("%s. Continuing with what there is: failOnDataLoss=false", what)


def _departure(tp: TopicPartition, marked: MarkedOffset, file: plan.FileState) -> str | None:
    """Why the offset does not belong to this file's history; None if nothing indicates that."""
    if marked.mark is not None and marked.mark in file.departures:
        return file.departures[marked.mark]
    state = file.states.get(tp)
    if state is not None and marked.offset > (end := state.offsets.last_stable_offset):
        return f"the log goes to {end} only: this is another file, or an older copy"
    return None


def _ends(cut: plan.Cut) -> dict[Place, int]:
    return {
        (path, tp): state.end for path, file in cut.items() for tp, state in file.states.items()
    }


def _marks(cut: plan.Cut) -> dict[str, str]:
    return {path: file.mark for path, file in cut.items()}


def _not_back(before: Mapping[Place, int], newest: Mapping[Place, int]) -> dict[Place, int]:
    return {place: max(offset, before.get(place, 0)) for place, offset in newest.items()}


def _limited(
    before: Mapping[Place, int], first: Mapping[Place, int], newest: Mapping[Place, int], most: int
) -> dict[Place, int]:
    """Move at most `most` offsets further, shared out in proportion to what waits in each partition."""
    starts = {place: before.get(place, first.get(place, 0)) for place in newest}
    waiting = {place: max(newest[place] - starts[place], 0) for place in newest}
    total = sum(waiting.values())
    if total <= most:
        return {**before, **_not_back(before, newest)}
    shares = {place: count * most // total for place, count in waiting.items()}
    rest = most - sum(shares.values())
    for place, count in sorted(waiting.items(), key=lambda item: -item[1]):
        if rest and shares[place] < count:
            shares[place] += 1
            rest -= 1
    return {**before, **{place: starts[place] + shares[place] for place in newest}}
