"""What became of the records of a `send_many`: how many were taken, which are stored and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.errors import EosdbError
from eosdb.model.values import Header, TopicPartition


class _Part(NamedTuple):
    """Some of the records, in the batch they were put into."""

    batch: ProducerBatch
    start: int
    """The first one's place in the batch."""
    numbers: Sequence[int]
    """Which ones of the iterable they are."""


class SentRecords:
    """What `send_many` returns, and after an exception what it was given as `sent`.

    It holds no record and nothing for each of them: offsets are ranges, one for each run that nobody else
    has written into. It is up to date whenever it is looked at.
    """

    __slots__ = ("_failed", "_offsets", "_parts", "_stored", "accepted")

    def __init__(self) -> None:
        self.accepted = 0
        """How many records the producer has taken over, always the first ones: they are stored, failed,
        or on their way. To go on after an exception, send the ones behind them; the `failed` ones are
        not among those."""
        self._stored = 0
        self._failed: dict[int, EosdbError] = {}
        self._offsets: dict[TopicPartition, list[range]] = {}
        self._parts: list[_Part] = []

    @property
    def stored(self) -> int:
        """How many are in the log; inside a transaction, visible once it is committed."""
        self.settle()
        return self._stored

    @property
    def offsets(self) -> dict[TopicPartition, list[range]]:
        """Where the stored ones are: in each partition in the order in which they were given.

        Without those that are known to be stored and not where, because the answer was lost.
        """
        self.settle()
        return self._offsets

    @property
    def failed(self) -> dict[int, EosdbError]:
        """Those that were given up, by their number in the iterable, and why. After
        RequestTimedOutError whether one is stored is unknown."""
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
        """Put records of so many bytes into the batch and remember that, both or neither."""
        records, parts = batch.records, self._parts
        start, count = len(records), len(numbers)
        if headers or records.headers:
            records.lay_headers(headers, start)
        part = _Part(batch, start, numbers)
        into_payload, into_timestamps = records.payload, records.timestamps
        # No call from here on: a signal could come between (decisions/0018).
        into_payload += payload
        into_timestamps += timestamps
        batch.size += size
        parts += (part,)
        self.accepted += count

    # decisions/0018: what changes, changes in the last lines of each branch, which call nothing.
    def settle(self) -> None:
        """Take over what has become of the batches, and let go of those that are done."""
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
    """The part in the two batches that its batch was split into."""
    first, second = part.batch.parts
    in_first = max(0, len(first.records) - part.start)
    parts = [
        _Part(first, part.start, part.numbers[:in_first]),
        _Part(second, max(0, part.start - len(first.records)), part.numbers[in_first:]),
    ]
    return [part for part in parts if part.numbers]
