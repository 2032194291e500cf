"""The columns of `records` in statements and results, by name: every position follows from a list of
names.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple


def insert_into_records(
    terms: Mapping[str, str], rows: Sequence[str], names: Sequence[str], once: Sequence[str] = ()
) -> str:
    """SQL: one INSERT of rows of values. The terms of the columns are computed from them by `names`, and
    from the values `once`, which are bound before all rows; other columns are NULL."""
    # decisions/0059: a value that is used twice has a name in an inner SELECT.
    named = [f'? AS "{name}"' for name in once]
    named += [f'column{place} AS "{name}"' for place, name in enumerate(names, 1)]
    columns = ",".join(f'"{name}"' for name in terms)
    return (
        f"INSERT INTO records ({columns}) SELECT {','.join(terms.values())} "
        f"FROM (SELECT {','.join(named)} FROM (VALUES {','.join(rows)}) AS given)"
    )


RANGE: Final = (
    "FROM (SELECT ? AS asked, * FROM records) "
    'WHERE partition_id = asked AND "offset" >= ? AND "offset" < ?'
)
"""SQL: the rows of a partition, which is called `asked`, from an offset on and below another."""


class Columns(NamedTuple):
    """The rows of a fetch, column by column; `content` is the sum that `log.checksum` compares."""

    timestamp: Sequence[Any] = ()
    timestamp_type: Sequence[Any] = ()
    key: Sequence[Any] = ()
    value: Sequence[Any] = ()
    headers: Sequence[Any] = ()
    # decisions/0058: the offset stands behind a column that no index has, so that what `content` takes for
    # it comes from the same place.
    offset: Sequence[Any] = ()
    content: Sequence[Any] = ()
    producer_id: Sequence[Any] = ()
    producer_epoch: Sequence[Any] = ()
    sequence: Sequence[Any] = ()
    is_transactional: Sequence[Any] = ()
    control: Sequence[Any] = ()


OFFSET: Final = Columns._fields.index("offset")
CONTENT: Final = Columns._fields.index("content")
FETCHED: Final = Columns._fields[: CONTENT + 1]
"""The columns that every fetch selects first."""
STORED: Final = Columns._fields
"""All columns that a fetch of stored records selects."""


def by_column(rows: Iterable[tuple[Any, ...]], names: Sequence[str] = FETCHED) -> Columns:
    """Transpose rows that begin with the columns `names`."""
    return Columns(*islice(zip(*rows, strict=True), len(names)))


def beginning(content: str, **terms: str) -> str:
    """SQL: the columns of FETCHED, or other terms instead of them."""
    terms = {"content": content, **terms}
    return ", ".join(terms.get(name, f'"{name}"') for name in FETCHED)
