"""Which aborted transactions a fetch is told: those that overlap what it reads, and no others."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.log import partition_rows, transaction_index
from eosdb.log.transaction_index import search
from eosdb.model.fetched import AbortedTransaction
from eosdb.store.writing.unit import Unit

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


@pytest.mark.parametrize(
    "gone", [[19], [29], [39], [19, 29], [29, 39], [19, 39], [19, 29, 39], [7]]
)
def test_what_is_left_of_an_index_is_linked(db: eosdb.Database, gone: list[int]) -> None:
    """As a compaction leaves it, which has removed the markers of some transactions."""
    db.admin.create_topic("t")
    with db._store.read() as connection:
        partition = partition_rows.read(connection, TopicPartition("t", 0))
    number = partition.partition_id

    def change(unit: Unit) -> int:
        previous = -1
        for entry in (ONE, TWO, THREE):
            transaction_index.add(unit, number, entry, previous)
            previous = entry.last_offset
        return transaction_index.forget(unit, number, gone, previous)

    newest = db._store.write(change)
    left = [entry for entry in (ONE, TWO, THREE) if entry.last_offset not in gone]
    assert newest == (left[-1].last_offset if left else -1)
    partition = partition._replace(last_aborted_offset=newest, log_end_offset=99)
    with db._store.read() as connection:
        assert transaction_index.collect(connection, partition, 0, 99) == left
