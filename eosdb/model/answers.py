"""The result of a SQL query: lazily read rows, shown as a table or converted to data frames. Also shows
reports as tables in a notebook, with markup in the data escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, Final

from eosdb.errors import ConfigError, InvalidRequestError
from eosdb.model.clock import format_time_ms
from eosdb.model.closing import Closeable
from eosdb.model.words import counted, decoded, module_for, printable, shortened

if TYPE_CHECKING:
    import pandas
    import pyarrow

Parameters = Sequence[object] | Mapping[str, object]
"""The values of a query's `?`, or of its `:name` by name."""
_SHOWN_ROWS: Final = 20
_SHOWN_WIDTH: Final = 40
_REPORT_WIDTH: Final = 80
_PLACE: Final = "text-align:left"
_PANDAS: Final = {"INTEGER": "Int64", "BOOLEAN": "boolean", "TIMESTAMP": "datetime64[ms, UTC]"}
_TIMES: Final = 10**11
"""Numbers above this are times (epoch ms), numbers below it durations (ms)."""


class Row(tuple[Any, ...]):
    """A tuple whose values are also accessible by column name: `row["topic"]`, `row.topic`."""

    __slots__ = ()
    _columns: tuple[str, ...] = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                key = self._columns.index(key)
            except ValueError:
                raise KeyError(key) from None
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name in self._columns:
            return self[name]
        raise AttributeError(f"no column {name!r}; there are {', '.join(self._columns)}")

    def as_dict(self) -> dict[str, Any]:
        """The values by column name. If columns have the same name, the last one's value."""
        return dict(zip(self._columns, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class QueryResult(Closeable):
    """The result of a query: `columns`, and rows, which are read lazily and once, by iteration, `all`,
    `one`, `df` or `arrow`.

    Printing it, or showing it in a notebook, reads 20 rows ahead and keeps them for the next read. To
    close it before all rows are read, use `with` or `close`, or drop it.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        rows: Iterator[tuple[Any, ...]],
        types: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.columns: Final = columns
        self._source = rows
        self._types = types
        self._kind = type("Row", (Row,), {"__slots__": (), "_columns": columns})
        self._ahead: list[Row] = []
        """Rows read for display, and not returned yet."""

    @property
    def rows(self) -> QueryResult:
        """The result itself, as an iterator over the rows not read yet."""
        return self

    def __iter__(self) -> QueryResult:
        return self

    def __next__(self) -> Row:
        return self._ahead.pop(0) if self._ahead else self._kind(next(self._source))

    def all(self) -> list[Row]:
        """The remaining rows."""
        rows = [*self._ahead, *map(self._kind, self._source)]
        self._ahead.clear()
        return rows

    def first(self) -> Row | None:
        """Return the next row, or None if there is none, and close the result."""
        row = next(self, None)
        self.close()
        return row

    def one(self) -> Row:
        """The only row. Raises InvalidRequestError if there is none, or more than one."""
        rows = list(islice(self, 2))
        self.close()
        if len(rows) == 1:
            return rows[0]
        raise InvalidRequestError(
            f"one(): the query has {'more than one row' if rows else 'no row'}, expected exactly one"
        )

    def df(self) -> pandas.DataFrame:
        """The remaining rows as a data frame. INTEGER, BOOLEAN and `_timestamp` of typed views arrive as
        `Int64`, `boolean` and `datetime64[ms, UTC]`. Raises ConfigError if pandas is not installed."""
        frames = module_for("df", "pandas", ConfigError)
        rows = [tuple(row) for row in self]
        frame = frames.DataFrame(rows, columns=list(self.columns))
        for place, (kind, values) in enumerate(self._typed(rows)):
            if kind:
                frame.isetitem(place, frames.Series(values, dtype=_PANDAS[kind]))
        return frame

    def arrow(self) -> pyarrow.Table:
        """The remaining rows as an Arrow table. BOOLEAN and `_timestamp` of typed views arrive as `bool`
        and `timestamp[ms, tz=UTC]`. Raises ConfigError if pyarrow is not installed, and InvalidRequestError
        for a column with values of several types, which SQLite allows."""
        arrow = module_for("arrow", "pyarrow", ConfigError)
        types = {"BOOLEAN": arrow.bool_(), "TIMESTAMP": arrow.timestamp("ms", tz="UTC")}
        arrays = []
        for name, (kind, values) in zip(self.columns, self._typed(list(self)), strict=True):
            try:
                arrays.append(arrow.array(values, type=types.get(kind)))
            except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
                raise InvalidRequestError(
                    f"column {name!r} cannot be an Arrow column: {error}; CAST it to one type in the query"
                ) from None
        return arrow.table(arrays, names=list(self.columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow().__arrow_c_stream__(requested_schema)

    def _typed(self, rows: list[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield the type and values of each column; the type is empty unless `_PANDAS` has it."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        types = self._types()
        for place, values in enumerate(columns):
            kind = types[place] if len(types) == len(columns) else ""
            if kind in _PANDAS and {*map(type, values)} <= {int, type(None)}:
                yield kind, [bool(v) if kind == "BOOLEAN" and v is not None else v for v in values]
            else:
                yield "", values

    def close(self) -> None:
        """Release the snapshot, which keeps the WAL from being reused; idempotent. No more rows can be
        read."""
        self._ahead.clear()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    # -- shown ----------------------------------------------------------------------------------

    def _peek(self) -> tuple[list[Row], bool]:
        """Return the next rows for display, which later reads return again, and whether there are more."""
        wanted = _SHOWN_ROWS + 1 - len(self._ahead)
        self._ahead += map(self._kind, islice(self._source, max(wanted, 0)))
        return self._ahead[:_SHOWN_ROWS], len(self._ahead) > _SHOWN_ROWS

    def __repr__(self) -> str:
        """A table of the next rows."""
        rows, has_more = self._peek()
        texts = [[_shown(value) for value in row] for row in rows]
        widths = [max(map(len, cells)) for cells in zip_longest(self.columns, *texts, fillvalue="")]
        lines = [list(self.columns), ["-" * width for width in widths], *texts]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([*table, _ending(len(rows), has_more)])

    def _repr_html_(self) -> str:
        rows, has_more = self._peek()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = ("".join(f"<td>{escape(_shown(value))}</td>" for value in row) for row in rows)
        lines = "".join(f"<tr>{cells}</tr>" for cells in chain([head], body))
        return f"<table>{lines}</table><p>{escape(_ending(len(rows), has_more))}</p>"


def _ending(count: int, has_more: bool) -> str:
    if has_more:
        return f"({count} rows shown, there are more)"
    return f"({counted(count, 'row')})"


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    text = decoded(value) if isinstance(value, bytes) else str(value)
    text = printable(text[: _SHOWN_WIDTH + 1])
    return text if len(text) <= _SHOWN_WIDTH else text[: _SHOWN_WIDTH - 1] + "…"


class Tabular:
    """A dataclass that a notebook shows as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return "".join(_report(type(self).__name__, dict(_facts(self))))


def _report(title: str, facts: Mapping[str, object]) -> Iterator[str]:
    """Yield HTML tables: one of the plain facts, and one for each fact that is a tuple of dataclasses."""
    lists = {name: rows for name, rows in facts.items() if _is_list(rows)}
    yield f"<table><caption style='{_PLACE}'>{escape(title)}</caption>"
    for name, value in facts.items():
        if name not in lists:
            yield f"<tr><th style='{_PLACE}'>{escape(name)}</th><td>{_fact(name, value)}</td></tr>"
    yield "</table>"
    for name, rows in lists.items():
        yield from _listed(name, rows)


def _listed(name: str, rows: Any) -> Iterator[str]:
    more = f" (the first {_SHOWN_ROWS} of {len(rows):,})" if len(rows) > _SHOWN_ROWS else ""
    yield f"<table><caption style='{_PLACE}'>{escape(name)}{more}</caption>"
    heads = "".join(f"<th>{escape(head)}</th>" for head, _ in _facts(rows[0]))
    yield f"<tr>{heads}</tr>"
    for row in rows[:_SHOWN_ROWS]:
        cells = "".join(f"<td>{_fact(*fact)}</td>" for fact in _facts(row))
        yield f"<tr>{cells}</tr>"
    yield "</table>"


def _facts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the shown fields as name and value. A dataclass among them is replaced by its fields."""
    for one in fields(value):
        found = getattr(value, one.name)
        if is_dataclass(found):
            yield from _facts(found)
        elif one.repr:
            yield one.name, found


def _is_list(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and is_dataclass(value[0])


def _fact(name: str, value: object) -> str:
    if isinstance(value, tuple):
        is_text = all(isinstance(one, str) for one in value)
        text = ", ".join(value) if is_text else f"{len(value):,}"
    elif isinstance(value, int) and value > _TIMES and name.endswith(("_ms", "timestamp")):
        text = format_time_ms(value)
    else:
        is_count = isinstance(value, int) and not isinstance(value, bool)
        text = f"{value:,}" if is_count else str(value)
    return escape(printable(shortened(text, _REPORT_WIDTH)))
