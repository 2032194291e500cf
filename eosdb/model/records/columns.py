"""The records of `poll_columns`: as columns, Arrow tables and data frames.

Only the methods that need pyarrow and pandas import them: eosdb does not require them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from eosdb.errors import IllegalStateError
from eosdb.model.values import Header
from eosdb.model.words import module_for
from eosdb.native.cells import Cells

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Consecutive records of one partition; `headers` is empty if no record has any."""

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    timestamp_types: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    headers: Sequence[tuple[Header, ...]]
    cells: tuple[Cells, int] | None = field(default=None, repr=False, compare=False, kw_only=True)
    """For `to_arrow`: the accelerator's data, if any (`eosdb.native.cells`), and the index of the first
    of these records in it."""

    def __len__(self) -> int:
        return len(self.offsets)


COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The columns of a Block in PartitionColumns, in its order."""
columns_of: Final[Callable[[PartitionColumns], tuple[Sequence[Any], ...]]] = attrgetter(
    "offsets", "timestamps", "timestamp_types", "keys", "values", "headers"
)


def piece(part: PartitionColumns, start: int, end: int) -> PartitionColumns:
    """The records from index `start` to index `end`."""
    assert 0 <= start <= end, (start, end)
    columns = [column[start:end] for column in columns_of(part)]
    return PartitionColumns(part.topic, part.partition, *columns)


# decisions/0024: `parts` are the fetched columns themselves; they are not copied into one.
@dataclass(frozen=True, slots=True)
class PolledColumns:
    """The records of one `poll_columns`; a partition may occur more than once, in order."""

    parts: tuple[PartitionColumns, ...]

    def __len__(self) -> int:
        """The number of records."""
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[PartitionColumns]:
        return iter(self.parts)

    def to_arrow(self) -> pyarrow.Table:
        """Convert all records to one table with the columns of a ConsumerRecord: topic, partition, offset,
        timestamp (ms, UTC), timestamp_type, key, value, headers.

        Raises IllegalStateError if pyarrow is not installed.
        """
        arrow = module_for("to_arrow", "pyarrow", IllegalStateError)
        header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
        types = {
            "topic": arrow.string(),
            "partition": arrow.int32(),
            "offset": arrow.int64(),
            "timestamp": arrow.timestamp("ms", "UTC"),
            "timestamp_type": arrow.int8(),
            "key": None,
            "value": None,
            "headers": arrow.list_(header),
        }
        if self.parts and all(part.cells for part in self.parts):
            tables = [_table(arrow, part, types) for part in self.parts]
            return arrow.concat_tables(tables)
        tables = []
        for name, column in self._columns().items():
            values = arrow.array(column, types[name])
            tables.append(
                values.cast(arrow.binary()) if arrow.types.is_null(values.type) else values
            )
        return arrow.table(tables, names=list(types))

    def to_pandas(self) -> pandas.DataFrame:
        """Convert all records to a data frame. Raises IllegalStateError if pandas is not installed."""
        frames = module_for("to_pandas", "pandas", IllegalStateError)
        columns = self._columns()
        columns["timestamp"] = frames.to_datetime(columns["timestamp"], unit="ms", utc=True)
        return frames.DataFrame(columns)

    def _columns(self) -> dict[str, Any]:
        parts = self.parts

        def joined(name: str) -> list[Any]:
            return list(chain.from_iterable(getattr(part, name) for part in parts))

        return {
            "topic": list(chain.from_iterable(repeat(part.topic, len(part)) for part in parts)),
            "partition": list(
                chain.from_iterable(repeat(part.partition, len(part)) for part in parts)
            ),
            "offset": joined("offsets"),
            "timestamp": joined("timestamps"),
            "timestamp_type": joined("timestamp_types"),
            "key": joined("keys"),
            "value": joined("values"),
            "headers": list(
                chain.from_iterable(part.headers or repeat((), len(part)) for part in parts)
            ),
        }


def _table(arrow: Any, part: PartitionColumns, types: dict[str, Any]) -> Any:
    assert part.cells is not None
    cells, start = part.cells
    count, stored = len(part), COLUMNS[:-1]
    columns = dict(zip(stored, cells.arrays(arrow, stored), strict=True))
    columns = {name: column.slice(start, count) for name, column in columns.items()}
    for name in ("timestamp", "timestamp_type"):
        columns[name] = columns[name].cast(types[name])
    for name, value in (("topic", part.topic), ("partition", part.partition)):
        columns[name] = arrow.repeat(arrow.scalar(value, types[name]), count)
    columns["headers"] = (
        arrow.array(part.headers, types["headers"])
        if part.headers
        else arrow.ListArray.from_arrays(
            arrow.repeat(arrow.scalar(0, arrow.int32()), count + 1),
            arrow.array([], types["headers"].value_type),
        )
    )
    return arrow.table([columns[name] for name in types], names=list(types))
