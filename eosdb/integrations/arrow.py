"""A range of a partition as Arrow record batches, with the columns of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eosdb.admin.admin import Admin
from eosdb.errors import InvalidRequestError, InvalidTimestampError
from eosdb.log.batch import headers_from_text
from eosdb.model.damage import reads
from eosdb.model.fetched import Want
from eosdb.model.records.arrow_types import TYPES, schema
from eosdb.model.values import IsolationLevel, TopicPartition

MOST_ROWS: Final = 4_000
"""The most rows of a batch; batches that fit into the CPU's cache are fastest."""
_STORED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "sequence": "sequence",
}
"""The names of the columns in a scan; the others are constant within a partition."""


def batches(
    admin: Admin,
    topic_partition: TopicPartition,
    start: int,
    end: int,
    names: Sequence[str],
    *,
    isolation_level: IsolationLevel = "read_committed",
    skip_lost: bool = False,
    source_file: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the data records in [start, end), in order; each batch is read on demand.

    Raises the errors of `Database.admin.scan`: OffsetOutOfRangeError if retention has removed some of the
    records (unless `skip_lost`), CorruptRecordError for a damaged record, InvalidRequestError for an
    unknown column or an end beyond the last stable offset (read_uncommitted: the log end).
    """
    if unknown := [name for name in names if name not in tuple(TYPES)]:
        raise InvalidRequestError(
            f"columns: got {', '.join(map(repr, unknown))}, expected some of {', '.join(TYPES)}"
        )
    # A scan must return a column, so read one even if only constants are wanted.
    wanted = tuple(_STORED[name] for name in names if name in _STORED) or ("offset",)
    constants = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "source_file": source_file,
    }
    for block in admin.read_blocks(
        topic_partition,
        start,
        end,
        Want.CELLS,
        isolation_level=isolation_level,
        batch_size=MOST_ROWS,
        skip_lost=skip_lost,
    ):
        if block.size:
            columns = dict(zip(wanted, block.arrow(pa, wanted), strict=True))
            try:
                arrays = [
                    _stored(name, columns[_STORED[name]])
                    if name in _STORED
                    else pa.repeat(pa.scalar(constants[name], TYPES[name]), block.size)
                    for name in names
                ]
            except OverflowError:
                offsets, times = block.arrow(pa, ("offset", "timestamp"))
                worst = pc.index(times, pc.max(times)).as_py()
                raise InvalidTimestampError(
                    f"{source_file or 'the file'}, {topic_partition}: the record at offset "
                    f"{offsets[worst]} has a timestamp of {times[worst]} ms, which does not fit into "
                    "microseconds; leave out the column timestamp (Spark: option columns), or the record"
                ) from None
            yield pa.RecordBatch.from_arrays(arrays, schema=schema(names))


def _stored(name: str, values: pa.Array) -> pa.Array:
    match name:
        case "timestamp":
            try:
                return pc.multiply_checked(values, 1_000).view(TYPES[name])
            except pa.ArrowInvalid as error:
                raise OverflowError from error
        case "headers":
            return pa.array(map(_headers, values.to_pylist()), TYPES[name])
        case _:
            return values.cast(TYPES[name])


@reads("records")
def _headers(text: bytes | None) -> list[dict[str, object]] | None:
    if text is None:
        return None
    return [{"key": key, "value": value} for key, value in headers_from_text(text.decode())]
