"""Sends an iterable in bulk: pieces become columns, columns go into batches; `SentRecords` has the results.

A column is checked as a whole where possible (all bytes, all text), and only a serializer needs a call for
each record. So a record costs some calls into C and no object. The pieces fill the same batches as `send`
does. After CHUNK_RECORDS records, or when the buffer is full, all batches are sent, in one commit if the
transport is direct. So memory use is bounded, and other writers get their turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Final, NamedTuple, TypeAlias

from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.client.producer.partitioning import PartitionChooser
from eosdb.client.producer.settings import ProducerSettings
from eosdb.errors import EosdbError, InvalidRequestError, MessageTooLargeError
from eosdb.model.clock import later_ms
from eosdb.model.records.record_columns import piece_length
from eosdb.model.records.serializing import Serializer, as_far_as_it_goes, serialized
from eosdb.model.validation import as_headers, check_timestamp, shown
from eosdb.model.values import Header, ProducerRecord, TopicPartition, waiting_partition
from eosdb.system.signals import is_of_a_signal

Sendable: TypeAlias = "ProducerRecord | tuple[Any, Any] | Any"
"""A ProducerRecord, or a pair of key and value; any other object is a value."""

_BYTES: Final = frozenset({bytes, type(None)})
_PAIR: Final = 2


class Columns(NamedTuple):
    """Records column by column. A column of only None, or without headers, is empty."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    timestamps: Sequence[int | None]
    partitions: Sequence[int | None]
    sizes: Sequence[int]
    due: Sequence[int | None]
    """When a scheduled record is due; None for the others."""
    numbers: Sequence[int] = ()
    """The indexes of the records in the iterable, once they have times and partitions."""

    def pick(self, places: Sequence[int]) -> Columns:
        return Columns._make([column[i] for i in places] if column else () for column in self)


def lay_out(
    given: Sequence[Any], topic: str, settings: ProducerSettings, now_ms: int
) -> tuple[Columns, Exception | None]:
    """Lay out the records before the first one that cannot be sent. Also returns that record's error:
    TypeError or an error of a serializer, InvalidRecordError, InvalidRequestError, MessageTooLargeError."""
    try:
        return _columns(given, topic, settings, now_ms), None
    except Exception as raised:
        if is_of_a_signal(raised):
            raise
        whole, error = as_far_as_it_goes(_columns([one], topic, settings, now_ms) for one in given)
        return _columns(given[: len(whole)], topic, settings, now_ms), error


def _columns(given: Sequence[Any], topic: str, settings: ProducerSettings, now_ms: int) -> Columns:
    kinds = set(map(type, given))
    records: list[ProducerRecord] = []
    keys: Sequence[Any] = ()
    values: Sequence[Any] = given
    if kinds == {tuple} and {len(pair) for pair in given} == {_PAIR}:
        keys, values = zip(*given, strict=True)
    elif not kinds.isdisjoint((tuple, ProducerRecord)):
        records = [_record(one, topic) for one in given]
        keys = [record.key for record in records]
        values = [record.value for record in records]
    keys = _serialized("key", keys, settings.key_serializer)
    if not (values is given and kinds <= _BYTES and settings.value_serializer is None):
        values = _serialized("value", values, settings.value_serializer)
    headers = [as_headers(record.headers) if record.headers else () for record in records]
    columns = Columns(
        values,
        _given(keys),
        headers if any(headers) else (),
        _given([record.timestamp for record in records]),
        _given([record.partition for record in records]),
        _sizes(values, keys, headers),
        _given([later_ms(record.deliver_at, record.timestamp, now_ms) for record in records]),
    )
    for timestamp in columns.timestamps:
        if timestamp is not None:
            check_timestamp(timestamp)
    largest = max(columns.sizes, default=0)
    if largest > settings.max_request_size:
        raise too_large(largest, settings.max_request_size)
    return columns


def _record(given: Sendable, topic: str) -> ProducerRecord:
    if isinstance(given, ProducerRecord):
        if given.topic not in (None, topic):
            raise InvalidRequestError(
                f"the record is for topic {given.topic!r}, expected {topic!r} or none: send_many sends to "
                "one topic"
            )
        return given
    if type(given) is not tuple:
        return ProducerRecord(value=given)
    if len(given) != _PAIR:
        raise TypeError(f"got {shown(given)}, expected a pair of key and value")
    key, value = given
    return ProducerRecord(key=key, value=value)


def _serialized(
    what: str, column: Sequence[Any], serializer: Serializer | None
) -> Sequence[bytes | None]:
    if serializer is None:
        kinds = set(map(type, column))
        if kinds <= _BYTES:
            return column
        if kinds == {str}:
            try:
                return list(map(str.encode, column))
            except UnicodeEncodeError:
                pass  # `serialized` finds the record and raises its error.
    return [serialized(what, one, serializer) for one in column]


def _given(column: Sequence[Any]) -> Sequence[Any]:
    return column if any(one is not None for one in column) else ()


def _sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]],
) -> list[int]:
    """Return the size of each record in bytes, computed as in `send`."""
    sizes = [len(value) if value else 0 for value in values]
    if keys:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    if any(headers):
        more = (sum(len(name) + len(data or b"") for name, data in of_one) for of_one in headers)
        sizes = [size + extra for size, extra in zip(sizes, more, strict=True)]
    return sizes


def too_large(size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"the record has {size} bytes, max_request_size is {limit}")


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
        """The number of records in the log; records of a transaction are visible after its commit."""
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
        timestamps: Sequence[int | None],
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
        # The next lines call nothing, so no signal can separate the changes (decisions/0018).
        try:
            into_payload += payload
            into_timestamps += timestamps
            parts += part
        except MemoryError:
            records.cut(start)
            raise
        batch.size, self.accepted = filled, accepted

    # decisions/0018: each branch changes state only in its last lines, where no signal can interrupt it.
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


_PIECE_RECORDS: Final = 500
"""The most records of a piece."""
_PIECE_BYTES: Final = 262_144
"""The size of a piece in bytes at which pieces get fewer records."""
CHUNK_RECORDS: Final = 5_000
"""The most records that wait before they are sent."""


class Pieces:
    """Cuts an iterable into pieces, which have fewer records if the records are large."""

    def __init__(self, records: Iterable[Sendable]) -> None:
        # These are iterable, but give characters, fields, keys, or names of columns.
        is_frame = hasattr(records, "columns") and hasattr(records, "__getitem__")
        if is_frame or isinstance(
            records, str | bytes | bytearray | memoryview | ProducerRecord | Mapping
        ):
            raise TypeError(
                f"records: got {shown(records)}, expected an iterable of records, such as a list. Of a "
                "mapping give .items(), of a data frame its rows"
            )
        self._records = iter(records)
        self._count = 16

    def next(self) -> tuple[list[Any], Exception | None]:
        """Return the next records (none at the end of the iterable), and the error that the iterable raised
        after them."""
        return as_far_as_it_goes(islice(self._records, self._count))

    def measured(self, size: int) -> None:
        """Choose the length of the next piece from the size in bytes of the last piece."""
        self._count = piece_length(self._count, size, _PIECE_RECORDS, _PIECE_BYTES)


def _put(
    columns: Columns, begin: int, batch: ProducerBatch, most_bytes: int, sent: SentRecords
) -> int:
    """Put the records from `begin` on into the batch, as many as fit and at least one. Returns their size
    in bytes."""
    sizes, room = columns.sizes[begin:], most_bytes - batch.size
    count, size = len(sizes), sum(sizes)
    if size > room:
        ends = list(accumulate(sizes))
        count = bisect_right(ends, room, 1)
        size = ends[count - 1]
    part = slice(begin, begin + count)
    payload: list[bytes | None] = [None] * (2 * count)
    payload[1::2] = columns.values[part]
    if columns.keys:
        payload[::2] = columns.keys[part]
    numbers = columns.numbers[part]
    sent.take(batch, size, payload, columns.timestamps[part], columns.headers[part], numbers)
    return size


# decisions/0024: records are passed as columns, not objects; `sent` counts the accepted ones.
def take(
    chooser: PartitionChooser,
    topic: str,
    partition: int | None,
    given: Sequence[Sendable],
    sent: SentRecords,
) -> Exception | None:
    """Put a piece into batches, up to the first record that cannot be sent; returns that record's
    error. Takes no record if it raises: UnknownTopicOrPartitionError, InvalidTopicExceptionError or
    RequestTimedOutError."""
    now_ms, before = chooser.clock.time_ms(), sent.accepted
    columns, error = lay_out(given, topic, chooser.settings, now_ms)
    count, partitions = len(columns.sizes), columns.partitions
    if partition is not None:
        partitions = [partition if own is None else own for own in partitions or [None] * count]
    chosen, misplaced = chooser.numbers_for(topic, partitions, columns.keys, columns.sizes)
    times = [now_ms if given is None else given for given in columns.timestamps] or [now_ms] * count
    for at, due in enumerate(columns.due[: len(chosen)]):
        if due is not None:
            times[at], chosen[at] = due, waiting_partition(chosen[at])
    columns = columns._replace(timestamps=times, numbers=range(before, before + count))
    shares = _shares(columns, chosen)
    try:
        _fill(chooser, topic, shares, before, sent)
    except BaseException:
        _fill(chooser, topic, shares, before, sent)  # Continue, to accept records without a gap.
        raise
    return misplaced or error


def _shares(columns: Columns, chosen: list[int]) -> list[tuple[int, Columns]]:
    """Split the records by their chosen partition."""
    if chosen and chosen.count(chosen[0]) == len(columns.sizes):
        return [(chosen[0], columns)]
    places: dict[int, list[int]] = {}
    for place, partition in enumerate(chosen):
        places.setdefault(partition, []).append(place)
    return [(partition, columns.pick(of_it)) for partition, of_it in places.items()]


def _fill(
    chooser: PartitionChooser,
    topic: str,
    shares: list[tuple[int, Columns]],
    before: int,
    sent: SentRecords,
) -> None:
    """Fill batches with the records that `sent` does not count as accepted yet."""
    for partition, columns in shares:
        while (place := sent.accepted - before) < len(columns.sizes):
            batch = chooser.filling(topic, partition, columns.sizes[place])
            size = _put(columns, place, batch, chooser.accumulator.most_bytes, sent)
            chooser.accumulator.buffered_bytes += size
        before += len(columns.sizes)
