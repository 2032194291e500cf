"""The stream reader: micro-batches of committed records, from the offsets in Spark's checkpoint.

A checkpoint outlives the files. Before an offset is used, its file must still be the same, its history must
only have grown, and its topic must not have been recreated.

The query resumes from Spark's checkpoint, so a failed commit of a group's offsets (`groupId`) does not stop
it: the failure is logged once, and the commit is retried later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as limits
from pyspark.sql.types import StructType

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import EosdbError, UnknownMemberIdError
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.notices import catalog
from eosdb.spark_io.planning import files, offsets, options, plan
from eosdb.spark_io.planning.cut import Cut, Lens, other_file, other_topic
from eosdb.spark_io.planning.errors import SkippedFile, SparkOptionError
from eosdb.spark_io.planning.known_files import in_parallel
from eosdb.spark_io.planning.offsets import ONLY, Place, Positions
from eosdb.spark_io.planning.options import ReadOptions
from eosdb.spark_io.reading import tasks

_MOST_OFFSETS: Final = 5_000_000
"""The default of maxOffsetsPerTrigger. A backfill is split into micro-batches, so that a killed query
does not repeat all of it; Kafka's connector reads everything in one."""


class StreamReader(DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Runs in the driver, one for each query. A micro-batch contains each transaction whole or not at
    all, unless maxOffsetsPerTrigger, or its default, limits it."""

    def __init__(self, given: MutableMapping[str, str], schema: StructType) -> None:
        # Spark also creates one for each micro-batch, only to send it to tasks, so open nothing here.
        self._names = tuple(schema.fieldNames())
        plan.check(self._names)
        self._options = options.parse(given, streaming=True)
        request = files.given(given)
        self._is_fleet = files.is_fleet(request)
        self._lens = Lens(request, self._options)
        self._histories = Histories(self._options)
        self._last: Cut | None = None
        self._trigger = Trigger(
            self._options.min_offsets_per_trigger, self._options.max_trigger_delay_ms
        )
        self._frozen: dict[Place, int] | None = None
        group_id = self._options.group_id
        self._group = None if group_id is None else GroupProgress(group_id)
        self._told: tuple[dict[str, Any], Positions] = {}, Positions()
        """The offsets last returned to Spark, and parsed; usually Spark passes them to the next call."""

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need only the options, not the state of all files."""
        return {"_names": self._names, "_options": self._options}

    # -- offsets --------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        cut = plan.limits_cut(self._lens, self._options)
        starts: dict[Place, int] = {}
        by_file = in_parallel(
            lambda file: plan.positions(file, self._options.start, self._options, at_end=False),
            list(cut.files.values()),
        )
        for key, of_file in zip(cut.files, by_file, strict=True):
            starts |= {(key, tp): offset for tp, offset in of_file.items()}
        return self._to_json(self._moved(Positions(), starts, cut))

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        return limits.ReadMaxRows(self._options.max_offsets_per_trigger or _MOST_OFFSETS)

    def latestOffset(self, start: dict[str, Any], limit: limits.ReadLimit) -> dict[str, Any]:
        cut, (position,) = self._cut_at(start)
        before = offsets.numbers(position.offsets)
        if self._group is not None:
            # All offsets before the next micro-batch were written. (Spark calls `commit` one batch late,
            # and not after the last batch.)
            self._group.tell(
                {
                    (cut.files[key].path, tp): offset
                    for (key, tp), offset in before.items()
                    if key in cut.files
                }
            )
        newest = _ends(cut)
        if self._frozen is not None:  # A recreated topic may be shorter.
            newest = {p: min(end, newest[p]) for p, end in self._frozen.items() if p in newest}
        first = {
            (key, tp): state.offsets.log_start_offset
            for key, file in cut.files.items()
            for tp, state in file.states.items()
        }
        # ReadAllAvailable and Trigger.AvailableNow do not wait for a minimum.
        if self._frozen is None and not isinstance(limit, limits.ReadAllAvailable):
            waiting = sum(
                max(end - before.get(place, first.get(place, 0)), 0)
                for place, end in newest.items()
            )
            if not self._trigger.is_due(waiting):
                return self._to_json(position)
        if isinstance(limit, limits.ReadMaxRows):
            reached = _limited(before, first, newest, limit.max_rows)
        else:
            reached = {**before, **_not_back(before, newest)}
        return self._to_json(self._moved(position, reached, cut))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest offsets, and any skipped files, for `query.lastProgress`."""
        cut = self._last or self._cut()
        newest = self._moved(Positions(), _ends(cut), cut)
        told = offsets.to_json(newest, is_fleet=self._is_fleet)
        if skipped := self.skipped_files():
            told["@skipped"] = dict(skipped)
        return told

    def skipped_files(self) -> list[SkippedFile]:
        """The files that were skipped when the last micro-batch was planned."""
        return [] if self._last is None else [*self._last.skipped, *self._histories.missing]

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = _ends(self._cut())

    # -- records --------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[tasks.Task]:
        cut, (before, after) = self._cut_at(start, end)
        ranges = []
        for (key, tp), (stop, *_) in sorted(after.offsets.items()):
            if key not in cut.files:
                continue  # `Histories` has reported the file as missing.
            file = cut.files[key]
            path, state = file.path, file.states.get(tp)
            if state is None:
                self._histories.lost(f"{path}, {tp}: the partition is gone")
                continue
            # A partition created since the query began is read from its beginning.
            first = state.offsets.log_start_offset
            begin = before.offsets[key, tp].offset if (key, tp) in before.offsets else first
            if begin < first and begin < stop:
                self._histories.lost(
                    f"{path}, {tp}: the query stands at {begin}, the log begins at {first}"
                )
                begin = min(first, stop)
            ranges.append(plan.range_of(file, tp, begin, stop))
        return [tasks.Task(pack) for pack in plan.split(ranges, self._options) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, tasks.Task)
        return tasks.batches(partition.ranges, self._names, self._options)

    # -- helpers --------------------------------------------------------------------------------

    def _cut_at(self, *told: Mapping[str, Any]) -> tuple[Cut, list[Positions]]:
        """Take a cut of the files. Returns it with the checkpoint's positions that are still valid."""
        known = [self._parsed(each) for each in told]
        cut = self._cut(*known)
        self._histories.note_missing(known[-1], cut)
        # The end of a micro-batch is checked first, so that its error is the loss of planned records.
        known = [self._histories.still_valid(positions, cut) for positions in reversed(known)]
        return cut, known[::-1]

    def _cut(self, *known: Positions) -> Cut:
        """Take a cut, which includes files of a glob or directory that were created since the last cut."""
        remembered = offsets.marks(*(positions.offsets for positions in known))
        self._last = self._lens.cut(
            lambda key: remembered.get(key, ()),
            may_be_gone=not self._options.fail_on_data_loss and bool(known),
        )
        return self._last

    def _moved(self, before: Positions, reached: Mapping[Place, int], cut: Cut) -> Positions:
        marks = {key: file.mark for key, file in cut.files.items()}
        paths = {key: file.path for key, file in cut.files.items()}
        topic_ids = {key: file.topic_ids for key, file in cut.files.items()}
        return offsets.moved(before, reached, marks, paths, topic_ids)

    def _parsed(self, told: Mapping[str, Any]) -> Positions:
        known, parsed = self._told
        return parsed if told == known else offsets.parse(told, is_fleet=self._is_fleet)

    def _to_json(self, found: Positions) -> dict[str, Any]:
        if found is not self._told[1]:
            self._told = offsets.to_json(found, is_fleet=self._is_fleet), found
        return self._told[0]


def _ends(cut: Cut) -> dict[Place, int]:
    return {
        (key, tp): state.end for key, file in cut.files.items() for tp, state in file.states.items()
    }


def _not_back(before: Mapping[Place, int], newest: Mapping[Place, int]) -> dict[Place, int]:
    return {place: max(offset, before.get(place, 0)) for place, offset in newest.items()}


def _limited(
    before: Mapping[Place, int], first: Mapping[Place, int], newest: Mapping[Place, int], most: int
) -> dict[Place, int]:
    """Advance by at most `most` offsets, shared among the partitions that are behind."""
    starts = {place: before.get(place, first.get(place, 0)) for place in newest}
    waiting = {place: newest[place] - start for place, start in starts.items()}
    waiting = {place: count for place, count in waiting.items() if count > 0}
    if sum(waiting.values()) <= most:
        return {**before, **_not_back(before, newest)}
    # The sum of the offsets grows by `most` with each micro-batch, so each partition gets its turn.
    shares = _shares(waiting, most, turn=sum(starts.values()))
    return {**before, **{place: start + shares.get(place, 0) for place, start in starts.items()}}


def _shares(waiting: Mapping[Place, int], most: int, turn: int) -> dict[Place, int]:
    """Share `most` offsets, fewer than are `waiting`: one for each partition, and the rest in proportion,
    so that a backlog starves no partition. With more partitions than offsets, they take turns."""
    places = sorted(waiting)
    if len(places) > most:
        return {places[(turn + i) % len(places)]: 1 for i in range(most)}
    rest = most - len(places)
    others = sum(waiting.values()) - len(places)
    shares = {place: 1 + (count - 1) * rest // others for place, count in waiting.items()}
    left = most - sum(shares.values())
    for place in sorted(places, key=lambda place: -waiting[place]):
        if left and shares[place] < waiting[place]:
            shares[place] += 1
            left -= 1
    return shares


class Trigger:
    """The trigger of one query. The first micro-batch does not wait, as in Kafka's connector."""

    def __init__(self, least: int | None, most_ms: int, clock: Clock | None = None) -> None:
        self._least = least
        self._most_ms = most_ms
        self._clock = clock or SystemClock()
        self._last_ms: int | None = None

    def is_due(self, waiting: int) -> bool:
        """Whether to read the `waiting` offsets: if they reach the minimum, or the maximum delay has
        passed."""
        if self._least is None:
            return True
        now_ms = self._clock.monotonic_ms()
        is_long_ago = self._last_ms is None or now_ms - self._last_ms >= self._most_ms
        if waiting < self._least and not is_long_ago:
            return False
        self._last_ms = now_ms
        return True


class Histories:
    """The checks of one stream reader, and the losses it has logged."""

    def __init__(self, options: ReadOptions) -> None:
        self._options: Final = options
        self.missing: tuple[SkippedFile, ...] = ()
        self._told: set[str] = set()

    def still_valid(self, positions: Positions, cut: Cut) -> Positions:
        """Remove the positions of files with another history and of recreated topics, which are then read
        from their beginning. Raises SparkOptionError unless data loss is allowed."""
        gone: set[str] = set()
        others: set[tuple[str, str]] = set()
        for (key, tp), marked in positions.offsets.items():
            file = cut.files.get(key)
            if file is None or key in gone:
                continue
            if (why := other_file(tp, marked, file)) is not None:
                self.lost(
                    f"{file.path}, {tp}: the checkpoint is at offset {marked.offset}, but {why}. Give the "
                    "query a new checkpoint, or put the newest file back"
                )
                gone.add(key)
            elif (why := other_topic(tp, marked, file)) and (key, tp.topic) not in others:
                self.lost(
                    f"{file.path}, topic {tp.topic}: {why}, so the checkpoint's offsets are not of this "
                    "topic; the deleted topic's unread records are lost. Give the query a new "
                    "checkpoint"
                )
                others.add((key, tp.topic))
        return positions.without(gone, others)

    def lost(self, what: str) -> None:
        """Log a loss, once, if data loss is allowed; otherwise raise SparkOptionError."""
        if self._options.fail_on_data_loss:
            raise SparkOptionError(f"{what}. Set failOnDataLoss=false to read the rest")
        if what in self._told:
            return
        self._told.add(what)
        catalog.LOSS_ACCEPTED.say(loss=what)

    def note_missing(self, positions: Positions, cut: Cut) -> None:
        """Find the missing files, whose offsets are kept. Raises SparkOptionError unless files may be
        missing."""
        keys = {key for key, _ in positions.offsets if key != ONLY and key not in cut.files}
        told, self.missing = {one.path for one in self.missing}, ()
        if not keys:
            return
        left_out = {one.path for one in cut.skipped}
        now_at = {file.path: file.file_id for file in cut.files.values()}
        missing = []
        for key in sorted(keys):
            path = positions.paths.get(key, key)
            if path in left_out:
                continue
            reason = (
                f"the file with the id {key}, which the checkpoint knows from there, is missing"
            )
            if path in now_at:
                reason += f"; there is another file: its id is {now_at[path]}"
            if not self._options.ignoring.missing and self._options.fail_on_data_loss:
                raise SparkOptionError(
                    f"{path}: {reason}. Put it back where the query reads; or set "
                    "ignoreMissingFiles=true to continue without it and keep its offsets"
                )
            if path not in told:
                catalog.FILE_LEFT_OUT.say(file=path, cause=reason)
            missing.append(SkippedFile(path, reason))
        self.missing = tuple(missing)


_LATER_MS: Final = 60_000
_PATIENCE: Final = eosdb.BrokerConfig(lock_timeout_ms=1_000)
"""A query must not wait long for another writer."""

Offsets = dict[TopicPartition, int]


class GroupProgress:
    """Commits a query's offsets for one group, in the files whose offsets have moved."""

    def __init__(self, group_id: str, clock: Clock | None = None) -> None:
        self._group_id = group_id
        self._clock = clock or SystemClock()
        self._told: dict[str, Offsets] = {}
        self._not_before: dict[str, int] = {}
        self._warned_of: set[type[Exception]] = set()

    def tell(self, places: Mapping[Place, int]) -> None:
        """Commit these offsets, below which all records were written. Never raises."""
        now_ms = self._clock.monotonic_ms()
        refused: dict[type[Exception], list[tuple[str, Exception]]] = {}
        for path, reached in _by_file(places).items():
            if self._told.get(path) == reached or now_ms < self._not_before.get(path, now_ms):
                continue
            try:
                self._commit(path, reached)
            except Exception as error:  # No failed commit may stop the query.
                self._not_before[path] = now_ms + _LATER_MS
                refused.setdefault(type(error), []).append((path, error))
            else:
                self._told[path] = reached
        for kind, cases in refused.items():
            if kind not in self._warned_of:
                self._warned_of.add(kind)
                self._warn(*cases[0], len(cases) - 1)

    def _commit(self, path: str, offsets: Offsets) -> None:
        with eosdb.connect(path, create=False, migrate=False, config=_PATIENCE) as db:
            existing = db.admin.partition_offsets()
            db.broker.offset_commit(
                self._group_id,
                {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items() if tp in existing},
            )

    def _warn(self, path: str, error: Exception, more: int) -> None:
        why = str(error)
        if isinstance(error, UnknownMemberIdError):
            why = (
                f"the group has members ({self._members(path)}), and its offsets are theirs; choose a "
                "groupId that no consumer uses"
            )
        catalog.OFFSETS_NOT_NOTED.say(
            file=path,
            group_id=self._group_id,
            files=f"{path} and {more} more files" if more else path,
            cause=why,
        )

    def _members(self, path: str) -> str:
        with contextlib.suppress(EosdbError), eosdb.connect(path, read_only=True) as db:
            members = db.broker.describe_group(self._group_id).members
            return ", ".join(f"{m.member_id} of client {m.client_id}" for m in members)
        return "unknown"


def _by_file(places: Mapping[Place, int]) -> dict[str, Offsets]:
    by_file: dict[str, Offsets] = {}
    for (path, tp), offset in places.items():
        by_file.setdefault(path, {})[tp] = offset
    return by_file
