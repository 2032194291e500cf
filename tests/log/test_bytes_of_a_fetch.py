"""A fetch has as many records as fit into its bytes, read at once or row by row, and at least one."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from tests.cases import each

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
COUNT = 400
"""More than the rows that are measured together."""


@pytest.fixture(autouse=True)
def _log(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(b"k" * 10, b"v" * 90)] * COUNT))


@pytest.mark.slow
@each("fitting", [0, 1, 2, 63, 64, 65, 127, 128, 129, 300, 399, 400])
@each("more", [0, 99])
def test_no_more_than_fits_and_no_less(db: eosdb.Database, fitting: int, more: int) -> None:
    max_bytes = 100 * fitting + more
    fetched = db.broker.fetch(TP, 0, max_records=1_000, max_bytes=max_bytes)
    assert len(fetched.records) == max(fitting, 1)
    assert fetched.next_offset == max(fitting, 1)
    shown = db.broker.fetch_data(TP, 0, max_records=1_000, max_bytes=max_bytes)
    assert shown.size == max(fitting, 1)


@each("most", [1, 63, 64, 65, 399, 400, 401])
def test_no_more_than_max_records(db: eosdb.Database, most: int) -> None:
    for max_bytes in (1 << 30, 100 * COUNT - 1):
        fetched = db.broker.fetch(TP, 0, max_records=most, max_bytes=max_bytes)
        assert len(fetched.records) == min(most, COUNT - (max_bytes < 1 << 30))


def test_at_the_end_there_is_nothing_and_behind_it_an_error(db: eosdb.Database) -> None:
    assert db.broker.fetch(TP, COUNT).records == []
    with pytest.raises(eosdb.OffsetOutOfRangeError):
        db.broker.fetch(TP, COUNT + 1)
