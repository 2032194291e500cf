"""Where a consumer stands in its partitions, and how records come from there (Kafka: Fetcher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from eosdb.client.config import ConsumerSettings
from eosdb.client.consumer_requests import ConsumerRequests
from eosdb.client.filter import visible
from eosdb.errors import OffsetOutOfRangeError, UnstableOffsetCommitError
from eosdb.model import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    DataRow,
    OffsetAndMetadata,
    TopicPartition,
)

_FETCH_RECORDS: Final = 2_000
_new: Final = tuple.__new__


class Cursor:
    """Where the consumer stands in one partition."""

    __slots__ = ("_next", "_rows", "fetch_offset", "fetched_end", "paused", "position")

    def __init__(self) -> None:
        self.position: int | None = None
        self.fetch_offset = 0
        self.fetched_end = 0
        self.paused = False
        self._rows: list[DataRow] = []
        self._next = 0

    def seek(self, offset: int) -> None:
        self.position = self.fetch_offset = offset
        self._rows, self._next = [], 0

    def fill(self, rows: list[DataRow], fetch_offset: int) -> None:
        """Go on with these rows, and behind them at `fetch_offset`."""
        self._rows, self.fetch_offset = rows, fetch_offset
        self._next = 0
        self.advance(0)

    def ahead(self, limit: int) -> list[DataRow]:
        """The next rows; none when there must be a fetch first."""
        return self._rows[self._next : self._next + limit]

    def advance(self, count: int) -> None:
        """Move the position past so many rows, and past what is left out behind them."""
        self._next += count
        if self._next < len(self._rows):
            self.position = self._rows[self._next][0]
        else:
            self.position = self.fetch_offset
            self._rows, self._next = [], 0


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
        settings = self._settings
        may_fail = (settings.key_deserializer or settings.value_deserializer) is not None
        while len(taken) < limit:
            rows = cursor.ahead(limit - len(taken))
            if rows and may_fail:
                for row in rows:
                    taken += _records(tp, [self._deserialized(row)])
                    cursor.advance(1)
            elif rows:
                taken += _records(tp, rows)
                cursor.advance(len(rows))
            elif not self._fill(tp, cursor):
                return

    def _fill(self, tp: TopicPartition, cursor: Cursor) -> bool:
        """Fetch what comes next, which may be nothing to hand out; False at the end."""
        committed = self._settings.isolation_level == "read_committed"
        try:
            fetched = self._broker.fetch(
                tp,
                cursor.fetch_offset,
                isolation_level=self._settings.isolation_level,
                max_records=_FETCH_RECORDS,
            )
        except OffsetOutOfRangeError:
            if self._settings.auto_offset_reset == "none":
                raise
            cursor.seek(self._reset_offset(tp))
            return True
        cursor.fetched_end = fetched.last_stable_offset if committed else fetched.high_watermark
        if fetched.next_offset == cursor.fetch_offset:
            return False
        rows = visible(fetched.rows, fetched.aborted_transactions)
        cursor.fill(rows, fetched.next_offset)
        return True

    def _deserialized(self, row: DataRow) -> tuple[object, ...]:
        offset, timestamp, timestamp_type, key, value, headers, producer_id = row
        settings = self._settings
        made_key: object = key
        made_value: object = value
        if settings.key_deserializer is not None and key is not None:
            made_key = settings.key_deserializer(key)
        if settings.value_deserializer is not None and value is not None:
            made_value = settings.value_deserializer(value)
        return offset, timestamp, timestamp_type, made_key, made_value, headers, producer_id

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


def _records(tp: TopicPartition, rows: Iterable[tuple[Any, ...]]) -> list[ConsumerRecord]:
    """Rows as records; what this does for each is what handing out costs (a call is too much)."""
    topic, partition = tp
    return [
        _new(ConsumerRecord, (topic, partition, offset, timestamp, kind, key, value, headers or ()))
        for offset, timestamp, kind, key, value, headers, _ in rows
    ]
