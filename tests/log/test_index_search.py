"""Which aborted transactions a fetch is told: those that overlap what it reads, and no others."""

from __future__ import annotations

import pytest

from eosdb.log.transaction_index import search
from eosdb.model.fetched import AbortedTransaction

ONE, TWO, THREE = (
    AbortedTransaction(1, 10, 19, 20),
    AbortedTransaction(2, 20, 29, 25),
    AbortedTransaction(3, 25, 39, 40),
)


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (0, 10, []),
        (0, 11, [ONE]),
        (19, 20, [ONE]),
        (20, 20, []),
        (20, 21, [TWO]),
        (19, 21, [ONE, TWO]),
        (29, 30, [TWO, THREE]),
        (30, 31, [THREE]),
        (39, 99, [THREE]),
        (40, 99, []),
        (0, 25, [ONE, TWO]),
        (0, 26, [ONE, TWO, THREE]),
    ],
)
def test_what_overlaps_is_told(start: int, end: int, told: list[AbortedTransaction]) -> None:
    assert list(search([ONE, TWO, THREE], start, end)) == told


@pytest.mark.parametrize(("end", "read"), [(20, 1), (21, 2), (25, 2), (26, 3), (99, 3)])
def test_the_search_ends_with_the_entry_whose_stable_offset_reaches_the_bound(
    end: int, read: int
) -> None:
    """All later ones began behind it: a long index is not read to its end for each fetch."""
    entries = iter([ONE, TWO, THREE])
    list(search(entries, 0, end))
    assert 3 - len([*entries]) == read
