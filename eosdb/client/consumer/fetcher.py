"""A consumer's partitions: its positions there, the callbacks for their assignment and revocation, and
fetching records at the positions (Kafka: Fetcher)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from eosdb import errors
from eosdb.client.consumer.requests import ConsumerRequests
from eosdb.model.fetched import Block, StoredRows
from eosdb.model.notices import catalog
from eosdb.model.protocol.consumer_questions import Moved
from eosdb.model.records.columns import COLUMNS, PartitionColumns, columns_of, piece
from eosdb.model.records.garbage import without_garbage_collection
from eosdb.model.records.serializing import Deserializer, as_far_as_it_goes
from eosdb.model.requests import FetchData, LeaderEpochs, ListOffsets, Topic
from eosdb.model.values import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetReset,
    TopicMetadata,
    TopicPartition,
)
from eosdb.native import accelerator
from eosdb.system.signals import is_of_a_signal

OnChange = Callable[[list[TopicPartition]], object]


class AssignedPartitions:
    """Assigns and revokes partitions, and calls the user's callbacks (Kafka: ConsumerRebalanceListener).
    Callbacks may read positions and commit: partitions stay assigned until their callback returns."""

    def __init__(
        self, cursors: dict[TopicPartition, Cursor], before_revoke: Callable[[], None]
    ) -> None:
        self._cursors = cursors
        self._before_revoke = before_revoke
        self._on_assign: OnChange | None = None
        self._on_revoke: OnChange | None = None
        self._on_lost: OnChange | None = None

    def listen(
        self, on_assign: OnChange | None, on_revoke: OnChange | None, on_lost: OnChange | None
    ) -> None:
        """Set the callbacks; without `on_lost`, `on_revoke` is called for lost partitions."""
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._on_lost = on_lost or on_revoke

    def assigned(self) -> Collection[TopicPartition]:
        return self._cursors.keys()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions. The callback is called even without partitions."""
        given = sorted(partitions)
        assert self._cursors.keys().isdisjoint(given), given
        for tp in given:
            self._cursors[tp] = Cursor()
        if self._on_assign is not None:
            self._on_assign(given)

    def revoke(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """Remove the partitions. If `lost`, other members may own them already, so nothing is committed."""
        revoked = sorted(partitions)
        callback = self._on_lost if lost else self._on_revoke
        try:
            if not lost:
                self._before_revoke()
            if callback is not None:
                callback(revoked)
        finally:
            for tp in revoked:
                self._cursors.pop(tp, None)

    def replace(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign exactly these partitions. Returns whether anything has changed."""
        before, after = set(self._cursors), set(partitions)
        if gone := before - after:
            self.revoke(gone)
        if new := after - before:
            self.assign(new)
        return before != after


_FETCH_RECORDS: Final = 2_000
_SEVERAL: Final = 8
"""One question about more partitions than these costs less than a fetch from each."""
_new: Final = tuple.__new__
_shown: Final[Callable[[StoredRows], tuple[Sequence[Any], ...]]] = attrgetter(*COLUMNS)


class Cursor:
    """The consumer's position in one partition, and the records fetched from there."""

    __slots__ = (
        "_block",
        "_next",
        "end_turn",
        "fetch_offset",
        "fetched_end",
        "paused",
        "position",
        "topic_id",
        "was_made_anew",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.fetch_offset = 0
        self.fetched_end = 0
        self.end_turn = -1
        """The last turn of the fetcher in which the end of the partition was reached."""
        self.paused = False
        self.topic_id: UUID | None = None
        """The topic id of the position; None before its look-up."""
        self.was_made_anew = False
        """Whether the topic was deleted and recreated, so that all its records are unread."""
        self._empty()

    def _empty(self) -> None:
        # `_next` is an index into `_block`. These lines call nothing, so no signal can separate them.
        self._block: Block | None = None
        self._next = 0

    def seek(self, offset: int) -> None:
        self.position = self.fetch_offset = offset
        self.was_made_anew, self.end_turn = False, -1
        self._empty()

    def resume(self) -> None:
        self.paused, self.end_turn = False, -1

    @property
    def is_empty(self) -> bool:
        """Whether a fetch is needed for the next records."""
        return self._block is None

    def begin_anew(self) -> None:
        """Reset a position in a deleted topic."""
        self.position, self.topic_id, self.was_made_anew = None, None, True
        self._empty()

    def fill(self, block: Block) -> None:
        """Return the records of the block next, and then fetch from its end on."""
        assert block.start == self.fetch_offset, block
        assert block.start <= block.stop, block
        self._block, self._next, self.fetch_offset = block, 0, block.stop
        self.advance(0)

    def ahead(self, tp: TopicPartition, limit: int) -> PartitionColumns | None:
        """The next records; None if a fetch is needed first."""
        assert limit > 0, limit
        block, start, end = self._block, self._next, self._next + limit
        if block is None or start == len(block.rows.offset):
            return None
        cells = None if block.cells is None else (block.cells, start)
        columns = [column[start:end] for column in _shown(block.rows)]
        return PartitionColumns(*tp, *columns, cells=cells)

    def advance(self, count: int) -> None:
        """Move the position past `count` records, and past markers and aborted data after them."""
        assert count >= 0, count
        self._next += count
        assert self._block is None or self._next <= len(self._block.rows.offset), self._next
        if self._block is not None and self._next < len(self._block.rows.offset):
            self.position = self._block.rows.offset[self._next]
        else:
            self.position = self.fetch_offset
            self._empty()


class Fetcher:
    """Fetches the records of one consumer's partitions, which take turns."""

    def __init__(
        self,
        broker: ConsumerRequests,
        committed: Callable[
            [list[TopicPartition]], dict[TopicPartition, OffsetAndMetadata | errors.ApiError]
        ],
        commit: Callable[[TopicPartition, int], None],
    ) -> None:
        self.read_whole: Collection[str] = ()
        """Topics that are read from the beginning under any auto_offset_reset."""
        self._broker = broker
        self._settings = settings = broker.settings
        self._committed = committed
        self._commit = commit
        self.older: dict[UUID, int] | None = None
        """How many partitions of each topic existed at the subscription; None if there is none."""
        self.cursors: Final[dict[TopicPartition, Cursor]] = {}
        self._turn = 0
        self._calls_the_user: Final = (
            settings.key_deserializer is not None or settings.value_deserializer is not None
        )

    def collect(self, limit: int) -> list[PartitionColumns]:
        """Return records of all partitions, beginning with another partition at each call. If an error
        follows some records, the records are returned, and the next call raises the error."""
        self._turn += 1
        self.locate([tp for tp, cursor in self.cursors.items() if cursor.position is None])
        tps = [
            tp
            for tp, cursor in self.cursors.items()
            if cursor.position is not None and not cursor.paused
        ]
        if len(tps) > _SEVERAL:
            tps = self._not_at_end(tps)
        collected: list[PartitionColumns] = []
        try:
            with nullcontext() if self._calls_the_user else without_garbage_collection():
                for i in range(len(tps)):
                    tp = tps[(self._turn + i) % len(tps)]
                    limit -= self._collect_from(tp, self.cursors[tp], limit, collected)
                    assert limit >= 0, limit
        except Exception as error:
            if not collected or is_of_a_signal(error):
                raise
        return collected

    def is_at_end(self) -> bool:
        """Whether the last `collect` has reached the end of every partition that is not paused."""
        return all(c.paused or c.end_turn == self._turn for c in self.cursors.values())

    def _not_at_end(self, tps: list[TopicPartition]) -> list[TopicPartition]:
        """Those of many partitions that may have something to read, found by one question."""
        ids: dict[str, UUID] = {}
        positions: dict[str, dict[int, int]] = {}
        asked: list[tuple[TopicPartition, Cursor]] = []
        for tp in tps:
            cursor = self.cursors[tp]
            if not cursor.is_empty or (topic_id := cursor.topic_id) is None:
                continue
            # Beside a partition of the recreated topic, those of the older one are read one by one.
            if ids.setdefault(tp.topic, topic_id) == topic_id:
                positions.setdefault(tp.topic, {})[tp.partition] = cursor.fetch_offset
                asked.append((tp, cursor))
        level = self._settings.isolation_level
        moved = {*self._broker.ask(Moved(positions, ids, level))}
        for tp, cursor in asked:
            if tp not in moved:
                cursor.end_turn = self._turn
        return [tp for tp in tps if self.cursors[tp].end_turn != self._turn]

    def _collect_from(
        self, tp: TopicPartition, cursor: Cursor, limit: int, collected: list[PartitionColumns]
    ) -> int:
        """Add records of the partition to `collected`, and move the position past exactly these. Returns
        their number."""
        is_at_end, count = False, 0
        while count < limit:
            ahead = cursor.ahead(tp, limit - count)
            if ahead is not None:
                part, error = self._deserialized(ahead)
                if part:
                    collected.append(part)
                    cursor.advance(len(part))
                    count += len(part)
                if error is not None:
                    raise error
            elif is_at_end:
                break
            else:
                try:
                    is_at_end = self._fill(tp, cursor)
                except errors.UnknownTopicIdError:
                    if count:
                        break  # The topic was recreated; the next poll returns the new topic's records.
                    self._begin_anew(tp, cursor)
                    is_at_end = cursor.position is None
        if is_at_end and cursor.is_empty:
            cursor.end_turn = self._turn
        return count

    def _begin_anew(self, tp: TopicPartition, cursor: Cursor) -> None:
        """Go to the beginning of a recreated topic, and log the recreation."""
        before = cursor.position
        cursor.begin_anew()
        catalog.TOPIC_MADE_ANEW.say(topic=tp.topic, partition=tp.partition, offset=before)
        self.locate([tp])

    def _deserialized(self, part: PartitionColumns) -> tuple[PartitionColumns, Exception | None]:
        """Deserialize up to the first record at which a deserializer raises. Returns the records before
        it, and the error."""
        if not self._calls_the_user:
            return part, None
        keys, key_error = _deserialize(part.keys, self._settings.key_deserializer)
        values, value_error = _deserialize(
            part.values[: len(keys)], self._settings.value_deserializer
        )
        end = len(values)
        assert end <= len(keys), end
        whole = replace(piece(part, 0, end), keys=keys[:end], values=values)
        return whole, value_error or key_error

    def _fill(self, tp: TopicPartition, cursor: Cursor) -> bool:
        """Fetch from the next offset on. Returns whether the end of the readable log is reached."""
        committed = self._settings.isolation_level == "read_committed"
        try:
            block = self._broker.ask(
                FetchData(
                    tp,
                    cursor.fetch_offset,
                    isolation_level=self._settings.isolation_level,
                    max_records=_FETCH_RECORDS,
                    check_crcs=self._settings.check_crcs,
                    topic_id=self.know(tp),
                )
            )
        except errors.OffsetOutOfRangeError:
            if self._reset_of(tp) == "none":
                raise
            cursor.seek(self._reset_offset(tp))
            return False
        bounds = block.bounds
        self._broker.metrics.observe("records-per-request", block.size)
        cursor.fetched_end = bounds.last_stable_offset if committed else bounds.high_watermark
        cursor.fill(block)
        return block.stop >= cursor.fetched_end

    def locate(self, tps: list[TopicPartition]) -> None:
        """Find the positions of partitions that have none. A pending committed offset gives no position
        until its transaction ends (KIP-447)."""
        if not tps:
            return
        for tp in tps:  # Ids first, or the offsets could be those of an older topic.
            self.know(tp)
        committed = self._committed(tps)
        for tp in tps:
            answer = committed.get(tp)
            if not isinstance(answer, errors.ApiError):
                self.begin(tp, answer)
            elif not isinstance(answer, errors.UnstableOffsetCommitError):
                raise answer

    def know(self, tp: TopicPartition) -> UUID:
        """Return the id of the topic that the partition's cursor reads, looked up once. Raises
        UnknownTopicOrPartitionError."""
        cursor = self.cursors[tp]
        if cursor.topic_id is None:
            cursor.topic_id = self._topic_id(tp.topic)
        return cursor.topic_id

    def _topic_id(self, topic: str) -> UUID:
        return self._broker.ask(Topic(topic, may_create=False)).topic_id

    def meet(self, topics: Iterable[TopicMetadata]) -> None:
        """Set the topic ids of cursors without one."""
        ids = {topic.name: topic.topic_id for topic in topics}
        for tp, cursor in self.cursors.items():
            cursor.topic_id = cursor.topic_id or ids.get(tp.topic)

    def positions(
        self, without: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            tp: OffsetAndMetadata(cursor.position)
            for tp, cursor in self.cursors.items()
            if cursor.position is not None and tp not in without
        }

    def longest_lag(self) -> int:
        """The largest lag of any partition, as of its last fetch."""
        return max([0, *(c.fetched_end - (c.position or 0) for c in self.cursors.values())])

    def stale(self) -> set[TopicPartition]:
        """The partitions whose topic was deleted or recreated since its look-up."""
        now: dict[str, UUID | None] = {}
        for topic in {tp.topic for tp in self.cursors}:
            try:
                now[topic] = self._topic_id(topic)
            except errors.UnknownTopicOrPartitionError:
                now[topic] = None
        return {tp for tp, topic_id in self.topic_ids().items() if now[tp.topic] != topic_id}

    def topic_ids(self) -> dict[TopicPartition, UUID]:
        """The known topic ids of the partitions."""
        return {
            tp: cursor.topic_id
            for tp, cursor in self.cursors.items()
            if cursor.topic_id is not None
        }

    def begin(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """Go to the committed offset, or without one to the offset that auto_offset_reset names."""
        topic_id = self.know(tp)
        is_new = self.older is not None and tp.partition >= self.older.get(topic_id, 0)
        if committed is not None:
            offset = self._kept(tp, committed)
        elif is_new and self._reset_of(tp) == "latest":
            # All of its records came after the subscription (KIP-1327). The commit says so to a member
            # that subscribed later, and may get the partition before this one commits a position.
            offset = self.beginning(tp)
            self._commit(tp, offset)
        else:
            offset = self._reset_offset(tp)
        self.cursors[tp].seek(offset)

    def _kept(self, tp: TopicPartition, committed: OffsetAndMetadata) -> int:
        """The committed offset, or the end of its leader epoch if the file was restored to an offset below
        (KIP-320). Raises OffsetOutOfRangeError then, if auto_offset_reset is 'none'."""
        if committed.leader_epoch < 0:
            return committed.offset
        _, end = self._broker.ask(LeaderEpochs(tp)).end_of(committed.leader_epoch)
        if end >= committed.offset:
            return committed.offset
        if self._reset_of(tp) == "none":
            raise errors.OffsetOutOfRangeError(
                f"{tp}: the committed offset is {committed.offset}, but leader epoch "
                f"{committed.leader_epoch} ended at {end}, since the file was restored; seek first"
            )
        return end if end >= 0 else self._reset_offset(tp)

    def _reset_of(self, tp: TopicPartition) -> OffsetReset:
        return "earliest" if tp.topic in self.read_whole else self._settings.auto_offset_reset

    def _reset_offset(self, tp: TopicPartition) -> int:
        reset, anew = self._reset_of(tp), self.cursors[tp].was_made_anew
        if reset == "none":
            why = "the topic was deleted and recreated" if anew else "there is no committed offset"
            raise errors.OffsetOutOfRangeError(
                f"{tp}: {why} and auto_offset_reset is 'none'; seek first"
            )
        if reset == "earliest" or anew:
            return self.beginning(tp)
        return self.end(tp)

    def beginning(self, tp: TopicPartition) -> int:
        return self._broker.ask(ListOffsets(tp, EARLIEST)).offset

    def end(self, tp: TopicPartition) -> int:
        """The end offset: under read_committed the last stable offset, otherwise the log end offset."""
        level = self._settings.isolation_level
        return self._broker.ask(ListOffsets(tp, LATEST, isolation_level=level)).offset


def records_of(found: Iterable[PartitionColumns]) -> list[ConsumerRecord]:
    """Make an object for each record. This is a third of the cost of reading, so no Python code runs for
    each record."""
    records: list[ConsumerRecord] = []
    module = accelerator.rows()
    with without_garbage_collection():
        for part in found:
            if module is not None:
                records += module.records(
                    ConsumerRecord, part.topic, part.partition, *columns_of(part)
                )
                continue
            fields = zip(
                repeat(part.topic), repeat(part.partition), part.offsets, part.timestamps,
                part.timestamp_types, part.keys, part.values, part.headers or repeat(()),
            )  # fmt: skip
            records += map(_new, repeat(ConsumerRecord), fields)
    return records


def _deserialize(
    column: Sequence[Any], deserializer: Deserializer | None
) -> tuple[Sequence[Any], Exception | None]:
    if deserializer is None:
        return column, None
    return as_far_as_it_goes(None if data is None else deserializer(data) for data in column)
