"""The columns of `records` in statements and results, by name: every position follows from a list of
names.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eosdb.model.fetched import Rows


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


STORED: Final = Rows._fields
"""All columns that a reading selects."""
SHOWN: Final = STORED[: STORED.index("offset") + 1]
"""Those that consumers get."""


def selecting(names: Sequence[str], content: str) -> str:
    """SQL: the columns, and behind them the sum that `log.checksum` compares with the content."""
    listed = ", ".join(f'"{name}"' for name in names)
    return f'SELECT {listed}, {content} {RANGE} ORDER BY "offset"'
