"""The result of a `send_many`: how many records were accepted, which are stored and where, which failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.errors import EosdbError
from eosdb.model.values import Header, TopicPartition


class _Part(NamedTuple):
    """Records in one batch."""

    batch: ProducerBatch
    start: int
    """The index of the first record in the batch."""
    numbers: Sequence[int]
    """The indexes of the records in the iterable."""


class SentRecords:
    """The result of `send_many`; after an exception, the object that was passed as `sent` has it.

    Holds no records and little memory: offsets are ranges, one for each run without records of other
    producers. The attributes are always up to date.
    """

    __slots__ = ("_failed", "_offsets", "_parts", "_stored", "accepted")

    def __init__(self) -> None:
        self.accepted = 0
        """The number of records that the producer has accepted, always the first ones of the iterable:
        they are stored, failed, or in flight. To continue after an exception, send the records after
        these; `failed` ones must be sent again separately."""
        self._stored = 0
        self._failed: dict[int, EosdbError] = {}
        self._offsets: dict[TopicPartition, list[range]] = {}
        self._parts: list[_Part] = []

    @property
    def stored(self) -> int:
        """The number of records in the log; those of a transaction are visible once it is committed."""
        self.settle()
        return self._stored

    @property
    def offsets(self) -> dict[TopicPartition, list[range]]:
        """The offsets of the stored records: in each partition, in the order of the iterable.

        Records that are stored at unknown offsets, because the response was lost, are absent.
        """
        self.settle()
        return self._offsets

    @property
    def failed(self) -> dict[int, EosdbError]:
        """The failed records, by index in the iterable, with their errors; an error's `outcome` says
        whether the record may be stored all the same."""
        self.settle()
        return self._failed

    def take(
        self,
        batch: ProducerBatch,
        size: int,
        payload: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Sequence[Header]],
        numbers: Sequence[int],
    ) -> None:
        """Put records of `size` bytes into the batch and count them as accepted, both or neither."""
        records, parts = batch.records, self._parts
        start, count = len(records), len(numbers)
        if headers or records.headers:
            records.lay_headers(headers, start)
        part = (_Part(batch, start, numbers),)
        into_payload, into_timestamps = records.payload, records.timestamps
        filled, accepted = batch.size + size, self.accepted + count
        # No call from here on: a signal could come between (decisions/0018).
        try:
            into_payload += payload
            into_timestamps += timestamps
            parts += part
        except MemoryError:
            records.cut(start)
            raise
        batch.size, self.accepted = filled, accepted

    # decisions/0018: each branch changes state in its last lines, which call nothing.
    def settle(self) -> None:
        """Take over the results of completed batches, and release these batches."""
        waiting = 0
        parts = self._parts
        while waiting < len(parts):
            batch, start, numbers = parts[waiting]
            if batch.parts:
                parts[waiting : waiting + 1] = _split(parts[waiting])
            elif batch.error is not None:
                failed = self._failed | dict.fromkeys(numbers, batch.error)
                self._failed = failed
                del parts[waiting]
            elif batch.result is None:
                waiting += 1
            else:
                stored = self._stored + len(numbers)
                ranges = self._offsets.setdefault(batch.tp, [])
                first = batch.result.base_offset + start
                offsets = range(first, first + len(numbers))
                place = len(ranges)
                if ranges and ranges[-1].stop == first:
                    place, offsets = place - 1, range(ranges[-1].start, offsets.stop)
                if batch.result.base_offset >= 0:
                    ranges[place:] = (offsets,)
                self._stored = stored
                del parts[waiting]

    def __repr__(self) -> str:
        return (
            f"SentRecords(accepted={self.accepted}, stored={self.stored}, failed={len(self.failed)}, "
            f"offsets={self.offsets})"
        )


def _split(part: _Part) -> list[_Part]:
    """Split the part as its batch was split."""
    first, second = part.batch.parts
    in_first = max(0, len(first.records) - part.start)
    parts = [
        _Part(first, part.start, part.numbers[:in_first]),
        _Part(second, max(0, part.start - len(first.records)), part.numbers[in_first:]),
    ]
    return [part for part in parts if part.numbers]
