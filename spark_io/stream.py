"""The stream reader: micro-batches of committed records, from offsets that Spark keeps in its checkpoint.

An offset is `{"topic": {"0": 23}}`, as the Kafka connector writes it; of a fleet, one such object by file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition

from . import columns, files, options, plan, reading
from .errors import SparkOptionError

Place = tuple[str, TopicPartition]
"""A partition in a file."""


class StreamTask(InputPartition):
    """What one task of a micro-batch reads."""

    def __init__(self, ranges: tuple[plan.Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, in the driver. A micro-batch shows each transaction whole or not at all, unless
    maxOffsetsPerTrigger cuts it shorter."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType) -> None:
        self._names = tuple(schema.fieldNames())
        columns.check(self._names)
        self._given = dict(given)
        self._options = options.parse(given, streaming=True)
        self._is_fleet = files.of_options(given).is_fleet
        self._frozen: dict[Place, int] | None = None
        self._told_group: dict[Place, int] | None = None

    # -- offsets --------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        found: dict[Place, int] = {}
        for path, states in self._cut().items():
            starts = plan.positions(path, states, self._options.start, self._options, at_end=False)
            found |= {(path, tp): offset for tp, offset in starts.items()}
        return self._told(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = self._places(start)
        self._tell_group(before)
        cut = self._cut()
        newest = self._frozen if self._frozen is not None else self._ends(cut)
        if not isinstance(limit, ReadMaxRows):
            return self._told({**before, **_not_back(before, newest)})
        first = {
            (path, tp): state.offsets.log_start_offset
            for path, states in cut.items()
            for tp, state in states.items()
        }
        return self._told(_limited(before, first, newest, limit.max_rows))

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._told(self._ends(self._cut()))

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._ends(self._cut())

    # -- records --------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[StreamTask]:
        before, after = self._places(start), self._places(end)
        cut = self._cut()
        ranges = []
        for (path, tp), stop in sorted(after.items()):
            state = cut.get(path, {}).get(tp)
            if state is None:
                self._lost(f"{path}, {tp}: the partition is gone")
                continue
            # A partition that has come since the query began is read from its beginning.
            offsets = state.offsets
            begin = before.get((path, tp), offsets.log_start_offset)
            if begin < offsets.log_start_offset and begin < stop:
                self._lost(
                    f"{path}, {tp}: the query stands at {begin}, the log begins at "
                    f"{offsets.log_start_offset}"
                )
                begin = min(offsets.log_start_offset, stop)
            if stop > offsets.last_stable_offset:
                self._lost(
                    f"{path}, {tp}: the checkpoint goes to {stop}, the log to "
                    f"{offsets.last_stable_offset}; another file, or an older copy, lies where the query "
                    "began"
                )
                stop = max(begin, offsets.last_stable_offset)
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

    def _tell_group(self, places: Mapping[Place, int]) -> None:
        """With option groupId, keep the progress where lag monitors look; Spark goes by its checkpoint.

        Where the next micro-batch is to begin, everything before has been written. (Spark's own `commit`
        comes a batch late, and after the last one not at all.)
        """
        group_id = self._options.group_id
        if group_id is None or places == self._told_group:
            return
        by_file: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for (path, tp), offset in places.items():
            by_file.setdefault(path, {})[tp] = OffsetAndMetadata(offset)
        for path, offsets in by_file.items():
            with eosdb.connect(path, create=False) as db:
                known = db.admin.partition_offsets()
                db.broker.offset_commit(
                    group_id, {tp: offset for tp, offset in offsets.items() if tp in known}
                )
        self._told_group = dict(places)

    def _cut(self) -> plan.Cut:
        """Of a glob or a folder, files that have come since are in it, too."""
        return plan.cut(files.of_options(self._given).paths, self._options)

    def _ends(self, cut: plan.Cut) -> dict[Place, int]:
        return {
            (path, tp): state.end for path, states in cut.items() for tp, state in states.items()
        }

    def _told(self, places: Mapping[Place, int]) -> dict[str, Any]:
        by_file: dict[str, dict[str, dict[str, int]]] = {}
        for (path, tp), offset in sorted(places.items()):
            by_file.setdefault(path, {}).setdefault(tp.topic, {})[str(tp.partition)] = offset
        if self._is_fleet:
            return by_file
        return dict(next(iter(by_file.values()), {}))

    def _places(self, told: Mapping[str, Any]) -> dict[Place, int]:
        by_file = told
        if not self._is_fleet:
            (path,) = files.of_options(self._given).paths
            by_file = {path: told}
        return {
            (path, TopicPartition(topic, int(partition))): int(offset)
            for path, topics in by_file.items()
            for topic, found in topics.items()
            for partition, offset in found.items()
        }

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SparkOptionError(f"{what}. Say failOnDataLoss=false to go on with what there is")


def _not_back(before: Mapping[Place, int], newest: Mapping[Place, int]) -> dict[Place, int]:
    return {place: max(offset, before.get(place, 0)) for place, offset in newest.items()}


def _limited(
    before: Mapping[Place, int], first: Mapping[Place, int], newest: Mapping[Place, int], most: int
) -> dict[Place, int]:
    """At most so many offsets further, shared out in proportion to what waits in each partition."""
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
