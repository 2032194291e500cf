"""The columns of `records` that statements write and read, by name: a column's place in a statement or a
row follows from a list of names, and nobody counts.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


def places(names: Sequence[str], after: int = 0) -> dict[str, str]:
    """SQL: the parameters for these, after so many others."""
    return {name: f"?{place}" for place, name in enumerate(names, after + 1)}


def insert_into_records(rows: Sequence[Mapping[str, str]]) -> str:
    """SQL: one statement for rows of terms, all with the same columns; the others are NULL."""
    names = ",".join(f'"{name}"' for name in rows[0])
    return f"INSERT INTO records ({names}) VALUES " + ",".join(
        [f"({','.join(row.values())})" for row in rows]
    )


FETCHED: Final = ("timestamp", "timestamp_type", "key", "value", "headers", "offset", "content")
"""What the rows of every fetch begin with; the last is what `log.checksum` says about the content."""
# decisions/0058: the offset stands behind a column that no index has, so that what `content` takes for it
# comes from the same place.
OFFSET: Final = FETCHED.index("offset")
CONTENT: Final = FETCHED.index("content")


def beginning(content: str, **terms: str) -> str:
    """SQL: the columns of FETCHED, or other terms in their places."""
    terms = {"content": content, **terms}
    return ", ".join(terms.get(name, f'"{name}"') for name in FETCHED)
