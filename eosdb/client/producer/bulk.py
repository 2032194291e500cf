"""Sends an iterable in bulk: its pieces become columns, and the columns go into batches.

A record costs some calls into C and no object. The pieces fill the same batches as `send` does. After
CHUNK_RECORDS records, or when the buffer is full, all batches are sent, in one commit if the transport is
direct. So memory use is bounded, and other writers get their turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Any, Final

from eosdb.client.producer.accumulator import Drive, ProducerBatch, RecordAccumulator
from eosdb.client.producer.layout import Columns, Sendable, lay_out
from eosdb.client.producer.partitioning import PartitionChooser
from eosdb.client.producer.sent import SentRecords
from eosdb.client.producer.settings import ProducerSettings
from eosdb.model.clock import Clock
from eosdb.model.records.record_columns import piece_length
from eosdb.model.records.serializing import as_far_as_it_goes
from eosdb.model.validation import shown

_PIECE_RECORDS: Final = 500
"""The most records of a piece."""
_PIECE_BYTES: Final = 262_144
"""The size of a piece in bytes at which pieces get fewer records."""
CHUNK_RECORDS: Final = 5_000
"""The most records that wait before they are sent."""


class Pieces:
    """Cuts an iterable into pieces of fewer records if these are large."""

    def __init__(self, records: Iterable[Sendable]) -> None:
        if isinstance(records, str | bytes):
            raise TypeError(f"records: got {shown(records)}, expected an iterable of records")
        self._records = iter(records)
        self._count = 16

    def next(self) -> tuple[list[Any], Exception | None]:
        """Return the next records, and the error that the iterable raised after them; no records at its
        end."""
        return as_far_as_it_goes(islice(self._records, self._count))

    def measured(self, size: int) -> None:
        """Choose the length of the next piece from the size of the last one, in bytes."""
        self._count = piece_length(self._count, size, _PIECE_RECORDS, _PIECE_BYTES)


class _Share:
    def __init__(
        self, partition: int, columns: Columns, places: Sequence[int], first: int, now_ms: int
    ) -> None:
        self.partition: Final = partition
        self.sizes: Final = columns.sizes
        self._columns = columns
        self._numbers = (
            range(first, first + len(places))
            if isinstance(places, range)
            else [first + place for place in places]
        )
        self._ends = list(accumulate(columns.sizes))
        self._times = [now_ms] * len(places)
        if columns.timestamps:
            self._times = [now_ms if given is None else given for given in columns.timestamps]

    def put(self, begin: int, batch: ProducerBatch, most_bytes: int, sent: SentRecords) -> int:
        """Put the records from `begin` on into the batch, as many as fit and at least one. Returns their
        size in bytes."""
        columns, ends = self._columns, self._ends
        before = ends[begin] - self.sizes[begin]
        end = bisect_right(ends, before + most_bytes - batch.size, begin + 1)
        payload: list[bytes | None] = [None] * (2 * (end - begin))
        payload[1::2] = columns.values[begin:end]
        if columns.keys:
            payload[::2] = columns.keys[begin:end]
        part = slice(begin, end)
        size = ends[end - 1] - before
        sent.take(
            batch, size, payload, self._times[part], columns.headers[part], self._numbers[part]
        )
        return size


# decisions/0024: records stay columns, and `sent` has the progress.
class BulkSender:
    """The part of a producer that sends many records at once."""

    def __init__(
        self,
        settings: ProducerSettings,
        clock: Clock,
        accumulator: RecordAccumulator,
        chooser: PartitionChooser,
        drive: Drive,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._accumulator = accumulator
        self._chooser = chooser
        self._drive = drive

    def take(
        self, topic: str, partition: int | None, given: Sequence[Sendable], sent: SentRecords
    ) -> Exception | None:
        """Put a piece into batches, up to the first record that cannot be sent; returns that record's
        error. Takes no record if it raises: UnknownTopicOrPartitionError, InvalidTopicExceptionError or
        RequestTimedOutError."""
        columns, error = lay_out(given, topic, self._settings)
        count, partitions = len(columns.sizes), columns.partitions
        if partition is not None:
            partitions = [partition if own is None else own for own in partitions or [None] * count]
        chosen, misplaced = self._chooser.numbers_for(
            topic, partitions, columns.keys, columns.sizes
        )
        if columns.due:
            columns, chosen = columns.scheduled(chosen)
        shares = self._shares(columns, chosen, sent.accepted)
        before = sent.accepted
        try:
            self._fill(topic, shares, before, sent)
        except BaseException:
            self._fill(topic, shares, before, sent)  # The accepted records must have no gaps.
            raise
        return misplaced or error

    def _shares(self, columns: Columns, chosen: list[int], first: int) -> list[_Share]:
        """Split the records by their chosen partition; they are numbered from `first` on."""
        now = self._clock.time_ms()
        everything = range(len(columns.sizes))
        if len(set(chosen)) == 1 and len(chosen) == len(everything):
            return [_Share(chosen[0], columns, everything, first, now)]
        places: dict[int, list[int]] = {}
        for place, partition in enumerate(chosen):
            places.setdefault(partition, []).append(place)
        return [
            _Share(partition, columns.pick(of_it), of_it, first, now)
            for partition, of_it in places.items()
        ]

    def _fill(self, topic: str, shares: list[_Share], before: int, sent: SentRecords) -> None:
        """Fill batches with the records that `sent` does not count as accepted yet."""
        for share in shares:
            while (place := sent.accepted - before) < len(share.sizes):
                batch = self._chooser.filling(
                    topic, share.partition, share.sizes[place], self._drive
                )
                most_bytes = self._accumulator.most_bytes
                self._accumulator.buffered_bytes += share.put(place, batch, most_bytes, sent)
            before += len(share.sizes)
