"""The columns of `records` in statements and results, by name: every position follows from a list of
names.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple


def places(names: Sequence[str], after: int = 0) -> dict[str, str]:
    """SQL: the parameter for each of these columns, after `after` other parameters."""
    return {name: f"?{place}" for place, name in enumerate(names, after + 1)}


def insert_into_records(rows: Sequence[Mapping[str, str]]) -> str:
    """SQL: one INSERT for rows of terms with the same columns; other columns are NULL."""
    names = ",".join(f'"{name}"' for name in rows[0])
    return f"INSERT INTO records ({names}) VALUES " + ",".join(
        [f"({','.join(row.values())})" for row in rows]
    )


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
