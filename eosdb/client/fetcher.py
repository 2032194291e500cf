"""Where a consumer stands in its partitions, and how records come from there (Kafka: Fetcher)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from eosdb.client.config import ConsumerSettings
from eosdb.client.consumer_requests import ConsumerRequests
from eosdb.client.filter import visible
from eosdb.errors import OffsetOutOfRangeError, UnstableOffsetCommitError
from eosdb.model import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    LogRecord,
    OffsetAndMetadata,
    TopicPartition,
)

_FETCH_RECORDS: Final = 2_000


class Cursor:
    """Where the consumer stands in one partition."""

    __slots__ = ("buffer", "fetch_offset", "fetched_end", "paused", "position")

    def __init__(self) -> None:
        self.position: int | None = None
        self.fetch_offset = 0
        self.fetched_end = 0
        self.buffer: deque[LogRecord] = deque()
        self.paused = False

    def seek(self, offset: int) -> None:
        self.position = self.fetch_offset = offset
        self.buffer.clear()


class Fetcher:
    """The records of one consumer's partitions, in turn."""

    def __init__(
        self,
        broker: ConsumerRequests,
        settings: ConsumerSettings,
        committed: Callable[[list[TopicPartition]], dict[TopicPartition, OffsetAndMetadata]],
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._committed = committed
        self.cursors: Final[dict[TopicPartition, Cursor]] = {}
        self._turn = 0

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Records of all partitions, beginning with another one at each call.

        What was taken before an error is handed out first; the next call meets the error again.
        """
        self.locate([tp for tp, cursor in self.cursors.items() if cursor.position is None])
        tps = [
            tp
            for tp, cursor in self.cursors.items()
            if cursor.position is not None and not cursor.paused
        ]
        taken: list[ConsumerRecord] = []
        self._turn += 1
        try:
            for i in range(len(tps)):
                tp = tps[(self._turn + i) % len(tps)]
                self._take_from(tp, self.cursors[tp], limit, taken)
        except Exception:
            if not taken:
                raise
        return taken

    def _take_from(
        self, tp: TopicPartition, cursor: Cursor, limit: int, taken: list[ConsumerRecord]
    ) -> None:
        """Add to `taken`; the position moves with every record that is in it, and no further."""
        buffer, settings = cursor.buffer, self._settings
        may_fail = (settings.key_deserializer or settings.value_deserializer) is not None
        while len(taken) < limit:
            if not buffer and not self._fill(tp, cursor, limit):
                return
            if may_fail:
                taken.append(self._handed_out(tp, buffer[0]))
                buffer.popleft()
            else:
                count = min(limit - len(taken), len(buffer))
                taken += [self._handed_out(tp, buffer.popleft()) for _ in range(count)]
            cursor.position = buffer[0].offset if buffer else cursor.fetch_offset

    def _fill(self, tp: TopicPartition, cursor: Cursor, limit: int) -> bool:
        """Fetch until there is something to hand out; False at the end."""
        while not cursor.buffer:
            try:
                fetched = self._broker.fetch(
                    tp,
                    cursor.fetch_offset,
                    isolation_level=self._settings.isolation_level,
                    max_records=max(limit, _FETCH_RECORDS),
                )
            except OffsetOutOfRangeError:
                if self._settings.auto_offset_reset == "none":
                    raise
                cursor.seek(self._reset_offset(tp))
                continue
            committed = self._settings.isolation_level == "read_committed"
            cursor.fetched_end = fetched.last_stable_offset if committed else fetched.high_watermark
            if fetched.next_offset == cursor.fetch_offset:
                return False
            cursor.fetch_offset = fetched.next_offset
            cursor.buffer.extend(visible(fetched.records, fetched.aborted_transactions))
            if not cursor.buffer:
                cursor.position = cursor.fetch_offset
        return True

    def _handed_out(self, tp: TopicPartition, record: LogRecord) -> ConsumerRecord:
        key: object = record.key
        value: object = record.value
        if self._settings.key_deserializer is not None and record.key is not None:
            key = self._settings.key_deserializer(record.key)
        if self._settings.value_deserializer is not None and record.value is not None:
            value = self._settings.value_deserializer(record.value)
        return ConsumerRecord(
            tp.topic,
            tp.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            record.headers,
        )

    def locate(self, tps: list[TopicPartition]) -> None:
        """Find where to begin in partitions that have no position yet.

        A partition whose offset a transaction holds stays where it is, nowhere, until that has ended
        (KIP-447).
        """
        if not tps:
            return
        try:
            committed = self._committed(tps)
        except UnstableOffsetCommitError:
            if len(tps) > 1:
                for tp in tps:
                    self.locate([tp])
            return
        for tp in tps:
            self.begin(tp, committed.get(tp))

    def begin(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """Go to the committed offset; without one, where auto_offset_reset says."""
        offset = committed.offset if committed is not None else self._reset_offset(tp)
        self.cursors[tp].seek(offset)

    def _reset_offset(self, tp: TopicPartition) -> int:
        match self._settings.auto_offset_reset:
            case "earliest":
                return self._broker.list_offsets(tp, EARLIEST).offset
            case "latest":
                return self.end(tp)
            case _:
                raise OffsetOutOfRangeError(
                    f"{tp}: there is no committed offset and auto_offset_reset is 'none'; seek first"
                )

    def end(self, tp: TopicPartition) -> int:
        """Where reading ends: the last stable offset under read_committed, else the log end."""
        return self._broker.list_offsets(
            tp, LATEST, isolation_level=self._settings.isolation_level
        ).offset
