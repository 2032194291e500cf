"""The columns of `records` in statements and results: a list of names defines every position.

The schema defines the columns (`migrations/newest.sql`); `log.checksum` covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eosdb.model.fetched import Rows


def insert_into_records(
    terms: Mapping[str, str], rows: Sequence[str], names: Sequence[str], once: Sequence[str] = ()
) -> str:
    """SQL: one INSERT of rows. `terms` compute the columns from each row's values, called `names`, and
    the values `once`, which are bound before all rows. Other columns are NULL."""
    # decisions/0059: an inner SELECT names a value that is used twice.
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
"""SQL: the rows of a partition, called `asked`, from an offset on and below another."""


STORED: Final = Rows._fields
"""All columns of a read."""
SHOWN: Final = STORED[: STORED.index("offset") + 1]
"""The columns that consumers get."""


def selecting(names: Sequence[str], content: str) -> str:
    """SQL: the columns, then the sum that `log.checksum` compares with the content."""
    listed = ", ".join(f'"{name}"' for name in names)
    return f'SELECT {listed}, {content} {RANGE} ORDER BY "offset"'
