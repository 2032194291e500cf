"""The columns of `records` that statements write and read, by name: a column's place in a statement or a
row follows from a list of names, and nobody counts.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple


def places(names: Sequence[str], after: int = 0) -> dict[str, str]:
    """SQL: the parameters for these, after so many others."""
    return {name: f"?{place}" for place, name in enumerate(names, after + 1)}


def insert_into_records(rows: Sequence[Mapping[str, str]]) -> str:
    """SQL: one statement for rows of terms, all with the same columns; the others are NULL."""
    names = ",".join(f'"{name}"' for name in rows[0])
    return f"INSERT INTO records ({names}) VALUES " + ",".join(
        [f"({','.join(row.values())})" for row in rows]
    )


class Columns(NamedTuple):
    """The rows of a fetch, column by column; `content` is the sum of `log.checksum`."""

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
"""What the rows of every fetch begin with."""
STORED: Final = Columns._fields
"""All that a fetch of stored records selects."""


def by_column(rows: Iterable[tuple[Any, ...]], names: Sequence[str] = FETCHED) -> Columns:
    """The columns of rows that begin with these."""
    return Columns(*islice(zip(*rows, strict=True), len(names)))


def beginning(content: str, **terms: str) -> str:
    """SQL: the columns of FETCHED, or other terms in their places."""
    terms = {"content": content, **terms}
    return ", ".join(terms.get(name, f'"{name}"') for name in FETCHED)
