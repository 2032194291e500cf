"""Random batches of one producer to one partition, on either side of the wrap: each is accepted once, and
a repeat gets the original offsets. What is lost, deleted or forgotten in between is the simulation's.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.errors import (
    OutOfOrderSequenceNumberError,
)
from eosdb.log.producer_state import (
    Accept,
    Duplicate,
    ProducerStateEntry,
    nearest_serial,
    round_of,
    sequence_of,
)
from tests.log.producer_batches import PRODUCER_ID, TOP, Row, batch, decide

pytestmark = pytest.mark.slow

COUNTS = st.integers(1, 4)
STARTS = st.sampled_from([0, 0, 1, 17, 2**30, TOP - 9, TOP - 1, TOP])


@given(st.integers(0, 2**40))
def test_a_serial_is_its_round_and_its_sequence(serial: int) -> None:
    assert round_of(serial) * 2**31 + sequence_of(serial) == serial


@given(st.integers(0, TOP), st.integers(0, 2**40))
def test_the_nearest_serial_has_the_sequence_and_is_within_half_a_round(
    sequence: int, expected: int
) -> None:
    serial = nearest_serial(sequence, expected)
    assert serial % 2**31 == sequence
    assert abs(serial - expected) <= 2**30


@pytest.mark.slow
@given(STARTS, st.lists(COUNTS, min_size=1, max_size=30))
def test_consecutive_batches_are_all_accepted_and_all_known_again(
    start: int, counts: list[int]
) -> None:
    known: ProducerStateEntry | None = None
    rows: list[Row] = []
    serial, offset = start, 0
    for count in counts:
        verdict = decide(known, batch(serial % 2**31, count), rows)
        assert verdict == Accept(serial)
        row = Row(serial, count, offset)
        known = (known or ProducerStateEntry(PRODUCER_ID, row.epoch)).after_append(
            row.epoch, row.metadata(), False, 0
        )
        rows.append(row)
        serial, offset = serial + count, offset + count
    for row in rows:
        again = batch(row.base_serial % 2**31, row.count)
        assert decide(known, again, rows) == Duplicate(row.base_offset, row.last_offset)
        if row in rows[-5:]:
            assert decide(known, again, []) == Duplicate(row.base_offset, row.last_offset)
        else:
            with pytest.raises(OutOfOrderSequenceNumberError):
                decide(known, again, [])
        assert decide(None, again, rows) == Duplicate(row.base_offset, row.last_offset)
