"""What a partition accepts from a producer: batches.

Goal: every row of Kafka's decision tables (ProducerAppendInfo, ProducerStateEntry) and every addition
of docs/semantics.md has its answer. Method: one producer whose last five batches are remembered and
whose older ones are rows; each case is a batch and the answer in words.
"""

from __future__ import annotations

import pytest

from eosdb.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
)
from eosdb.log.producer_state import (
    Incoming,
    LookBehind,
    judge,
    nearest_serial,
    round_of,
    sequence_of,
)
from tests.log.producer_batches import EPOCH, TOP, Row, answer, batch, decide, entry

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"
WRONG_STATE = "INVALID_TXN_STATE"

ROWS = [Row(serial, 2, 100 + serial) for serial in range(0, 20, 2)]
"""Sequences 0 to 19 in batches of two, at offsets 100 to 119."""
KNOWN = entry(ROWS[5:])
"""Sequences 10 to 19 are remembered."""
FEW = entry(ROWS[:2])
"""Only two batches, 0 to 3, so far."""
MARKER_ONLY = entry([])


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(20), "new at 20", id="the next sequence"),
        pytest.param(batch(20, 500), "new at 20", id="the next sequence, many records"),
        pytest.param(batch(21), OUT_OF_ORDER, id="a gap of one"),
        pytest.param(batch(20_000), OUT_OF_ORDER, id="a wide gap"),
        pytest.param(batch(18, 2), "stored at 118 to 119", id="the last batch again"),
        pytest.param(batch(16, 2), "stored at 116 to 117", id="the last but one again"),
        pytest.param(batch(14, 2), "stored at 114 to 115", id="the third last again"),
        pytest.param(batch(12, 2), "stored at 112 to 113", id="the fourth last again"),
        pytest.param(batch(10, 2), "stored at 110 to 111", id="the fifth last again"),
        pytest.param(batch(8, 2), "stored at 108 to 109", id="the sixth last, found as rows"),
        pytest.param(batch(0, 2), "stored at 100 to 101", id="the first, found as rows"),
        pytest.param(batch(18, 2, transactional=True), "stored at 118 to 119", id="now transactional"),
        pytest.param(batch(18, 1), OUT_OF_ORDER, id="first half of the last batch"),
        pytest.param(batch(19, 1), OUT_OF_ORDER, id="second half of the last batch"),
        pytest.param(batch(18, 3), OUT_OF_ORDER, id="the last batch and one more"),
        pytest.param(batch(19, 2), OUT_OF_ORDER, id="half of the last batch and one more"),
        pytest.param(batch(16, 4), OUT_OF_ORDER, id="the last two batches as one"),
        pytest.param(batch(10, 10), OUT_OF_ORDER, id="all remembered ones as one"),
        pytest.param(batch(10, 1), OUT_OF_ORDER, id="half of the oldest remembered one"),
        pytest.param(batch(9, 2), OUT_OF_ORDER, id="into the window from below"),
        pytest.param(batch(8, 4), OUT_OF_ORDER, id="the sixth last and the fifth last as one"),
        pytest.param(batch(0, 30), OUT_OF_ORDER, id="everything and more"),
    ],
)  # fmt: skip
def test_a_known_producer_in_the_same_epoch(incoming: Incoming, expected: str) -> None:
    assert answer(KNOWN, incoming, ROWS) == expected


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(18, 2), "stored at 118 to 119", id="remembered, newest"),
        pytest.param(batch(10, 2), "stored at 110 to 111", id="remembered, oldest"),
        pytest.param(batch(8, 2), OUT_OF_ORDER, id="just below the remembered ones"),
        pytest.param(batch(0, 2), OUT_OF_ORDER, id="the first"),
        pytest.param(batch(0, 10), OUT_OF_ORDER, id="everything below as one"),
        pytest.param(batch(9, 2), OUT_OF_ORDER, id="into the window from below"),
        pytest.param(batch(20), "new at 20", id="the next"),
    ],
)
def test_when_the_rows_are_deleted_the_remembered_batches_still_answer(
    incoming: Incoming, expected: str
) -> None:
    assert answer(KNOWN, incoming, rows=[]) == expected


@pytest.mark.parametrize("count", [1, 3, 4], ids=["a part", "one and a half", "two as one"])
def test_what_is_no_stored_batch_below_the_window_is_refused(count: int) -> None:
    assert answer(KNOWN, batch(4, count), ROWS) == OUT_OF_ORDER


STARTED_AT_5 = entry([Row(5, 2, 0)])
"""All that the partition has ever seen of the producer: 5 and 6 (KIP-360 lets it begin anywhere)."""


@pytest.mark.parametrize("count", [1, 4, 5])
@pytest.mark.parametrize("rows", [[Row(5, 2, 0)], []], ids=["rows kept", "rows deleted"])
def test_what_lies_below_the_first_batch_was_never_stored(count: int, rows: list[Row]) -> None:
    assert answer(STARTED_AT_5, batch(0, count), rows) == OUT_OF_ORDER


def test_nor_does_one_that_expired_and_came_back_higher_know_what_was_below() -> None:
    back = entry([Row(40, 2, 200)])
    assert answer(back, batch(20, 5), [*ROWS, Row(40, 2, 200)]) == OUT_OF_ORDER


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(4), "new at 4", id="the next"),
        pytest.param(batch(0, 2), "stored at 100 to 101", id="the first again"),
        pytest.param(batch(5), OUT_OF_ORDER, id="a gap"),
        pytest.param(batch(0, 4), OUT_OF_ORDER, id="both as one"),
        pytest.param(batch(TOP), OUT_OF_ORDER, id="what can never have been stored"),
        pytest.param(batch(TOP, 2), OUT_OF_ORDER, id="across the beginning"),
    ],
)
def test_a_producer_with_few_batches(incoming: Incoming, expected: str) -> None:
    assert answer(FEW, incoming, ROWS[:2]) == expected


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(20, epoch=2), STALE, id="older, next sequence"),
        pytest.param(batch(18, 2, epoch=2), STALE, id="older, the sequences of a stored batch"),
        pytest.param(batch(0, epoch=0), STALE, id="much older"),
        pytest.param(batch(0, epoch=4), "new at 0", id="newer, from 0"),
        pytest.param(batch(0, 2, epoch=4), "new at 0", id="newer, the sequences of a stored batch"),
        pytest.param(batch(0, epoch=32767), "new at 0", id="much newer, from 0"),
        pytest.param(batch(20, epoch=4), OUT_OF_ORDER, id="newer, next sequence of the old epoch"),
        pytest.param(batch(1, epoch=4), OUT_OF_ORDER, id="newer, from 1"),
        pytest.param(batch(18, 2, epoch=4), OUT_OF_ORDER, id="newer, a remembered range"),
    ],
)
def test_other_epochs(incoming: Incoming, expected: str) -> None:
    assert answer(KNOWN, incoming, ROWS) == expected


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(0), "new at 0", id="from 0"),
        pytest.param(batch(1), OUT_OF_ORDER, id="from 1"),
        pytest.param(batch(20), OUT_OF_ORDER, id="from anywhere"),
        pytest.param(batch(0, epoch=2), STALE, id="the epoch that the marker fenced"),
        pytest.param(batch(0, epoch=4), "new at 0", id="a newer epoch from 0"),
        pytest.param(batch(1, epoch=4), OUT_OF_ORDER, id="a newer epoch from 1"),
    ],
)
def test_a_producer_known_by_a_marker_only_starts_at_0(incoming: Incoming, expected: str) -> None:
    assert answer(MARKER_ONLY, incoming) == expected


def test_rows_from_before_the_marker_are_still_repeats() -> None:
    assert answer(MARKER_ONLY, batch(0, 2), ROWS) == "stored at 100 to 101"
    assert answer(MARKER_ONLY, batch(0, 1), ROWS) == OUT_OF_ORDER


@pytest.mark.parametrize("sequence", [0, 1, 12345, 2**30, 2**30 + 1, TOP])
@pytest.mark.parametrize("epoch", [0, 32767])
def test_an_unknown_producer_may_start_anywhere(sequence: int, epoch: int) -> None:
    assert answer(None, batch(sequence, 2, epoch=epoch)) == f"new at {sequence}"


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(20), "new at 20", id="it goes on"),
        pytest.param(batch(25), "new at 25", id="it goes on after a gap"),
        pytest.param(batch(18, 2), "stored at 118 to 119", id="its last batch again"),
        pytest.param(batch(10, 2), "stored at 110 to 111", id="its oldest stored batch again"),
        pytest.param(batch(18, 1), OUT_OF_ORDER, id="a part of a stored batch"),
        pytest.param(batch(19, 1), OUT_OF_ORDER, id="the end of a stored batch"),
        pytest.param(batch(19, 2), OUT_OF_ORDER, id="a stored sequence and a new one"),
        pytest.param(batch(16, 4), OUT_OF_ORDER, id="two stored batches as one"),
        pytest.param(batch(8, 4), OUT_OF_ORDER, id="deleted sequences and stored ones"),
        pytest.param(batch(8, 2), "new at 8", id="deleted sequences only, as in Kafka"),
        pytest.param(batch(0, epoch=4), "new at 0", id="a newer epoch"),
        pytest.param(batch(18, 2, epoch=4), "new at 18", id="a newer epoch from anywhere"),
    ],
)
def test_an_expired_producer_whose_newest_rows_are_left(incoming: Incoming, expected: str) -> None:
    assert answer(None, incoming, ROWS[5:]) == expected


def test_a_stored_batch_above_the_remembered_ones_is_a_repeat_too() -> None:
    # The producer expired, the rows below 10 are deleted, and then a very late batch came once more.
    late = entry([Row(0, 2, 500)])
    assert answer(late, batch(14, 2), [*ROWS[5:], Row(0, 2, 500)]) == "stored at 114 to 115"


# -- open transactions -------------------------------------------------------------------------------

OPEN = entry(ROWS[5:], current_txn_first_offset=118)


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        pytest.param(batch(20, transactional=True), "new at 20", id="goes on"),
        pytest.param(batch(20), WRONG_STATE, id="a plain batch"),
        pytest.param(batch(18, 2), "stored at 118 to 119", id="a plain repeat is found first"),
        pytest.param(batch(21), OUT_OF_ORDER, id="a plain gap is found first"),
        pytest.param(batch(20, epoch=2), STALE, id="a plain old epoch is found first"),
        pytest.param(batch(0, epoch=4), WRONG_STATE, id="a plain batch of a newer epoch"),
        pytest.param(batch(1, epoch=4), OUT_OF_ORDER, id="a plain gap in a newer epoch"),
        pytest.param(batch(0, epoch=4, transactional=True), "new at 0", id="a newer epoch goes on"),
    ],
)
def test_inside_an_open_transaction(incoming: Incoming, expected: str) -> None:
    assert answer(OPEN, incoming, ROWS) == expected


@pytest.mark.parametrize("first_offset", [0, 5])
@pytest.mark.parametrize("rows", [[], ROWS[:1]], ids=["no batch remembered", "one remembered"])
def test_a_transaction_is_open_from_any_offset_on(first_offset: int, rows: list[Row]) -> None:
    known = entry(rows, current_txn_first_offset=first_offset)
    assert answer(known, batch(2 * len(rows))) == WRONG_STATE


def test_without_open_transaction_a_transactional_batch_opens_one() -> None:
    assert answer(KNOWN, batch(20, transactional=True)) == "new at 20"


# -- the wrap ----------------------------------------------------------------------------------------

AT_TOP = entry([Row(TOP - 1, 2, 50)])
ACROSS = entry([Row(TOP - 1, 4, 50)])
AFTER = entry([Row(TOP - 3, 2, 40), Row(TOP - 1, 2, 42), Row(TOP + 1, 2, 44)])
LATER = entry([Row(TOP + 1 + serial, 2, 200 + serial) for serial in range(0, 10, 2)])
SECOND_ROUND = 2**31


@pytest.mark.parametrize(
    ("known", "incoming", "expected"),
    [
        pytest.param(AT_TOP, batch(0), f"new at {SECOND_ROUND}", id="after the last comes 0"),
        pytest.param(AT_TOP, batch(1), OUT_OF_ORDER, id="not 1"),
        pytest.param(AT_TOP, batch(TOP), OUT_OF_ORDER, id="not the last again"),
        pytest.param(AT_TOP, batch(TOP - 1, 2), "stored at 50 to 51", id="the last batch again"),
        pytest.param(
            entry([Row(TOP - 2, 1, 9)]), batch(TOP - 1, 5), f"new at {TOP - 1}", id="a batch across"
        ),
        pytest.param(ACROSS, batch(TOP - 1, 4), "stored at 50 to 53", id="the batch across again"),
        pytest.param(ACROSS, batch(TOP - 1, 2), OUT_OF_ORDER, id="its part before"),
        pytest.param(ACROSS, batch(0, 2), OUT_OF_ORDER, id="its part after"),
        pytest.param(ACROSS, batch(2), f"new at {SECOND_ROUND + 2}", id="on after it"),
        pytest.param(ACROSS, batch(3), OUT_OF_ORDER, id="a gap after it"),
        pytest.param(AFTER, batch(TOP - 3, 2), "stored at 40 to 41", id="from before, remembered"),
        pytest.param(AFTER, batch(0, 2), "stored at 44 to 45", id="from after, remembered"),
        pytest.param(AFTER, batch(TOP, 2), OUT_OF_ORDER, id="over two batches, across"),
        pytest.param(LATER, batch(TOP - 1, 2), OUT_OF_ORDER, id="from before, not remembered"),
        pytest.param(LATER, batch(TOP, 2), OUT_OF_ORDER, id="into the window from before"),
        pytest.param(
            LATER, batch(10), f"new at {SECOND_ROUND + 10}", id="the second round goes on"
        ),
    ],
)
def test_around_the_wrap(known: object, incoming: Incoming, expected: str) -> None:
    assert answer(known, incoming) == expected  # type: ignore[arg-type]


def test_from_before_the_wrap_found_as_rows() -> None:
    assert answer(LATER, batch(TOP - 1, 2), [Row(TOP - 1, 2, 50)]) == "stored at 50 to 51"


def test_the_same_sequence_one_round_later_is_another() -> None:
    at_10 = entry([Row(SECOND_ROUND + 8, 2, 900)])
    assert answer(at_10, batch(10, 2), [Row(10, 2, 110)]) == f"new at {SECOND_ROUND + 10}"


def test_a_repeat_of_the_second_round_is_not_taken_for_one_of_the_first() -> None:
    second = Row(SECOND_ROUND + 10, 2, 910)
    rows = [Row(10, 2, 110), second]
    assert answer(entry([second]), batch(10, 2), rows) == "stored at 910 to 911"
    assert answer(None, batch(10, 2), rows) == "stored at 910 to 911"
    assert answer(None, batch(12), rows) == f"new at {SECOND_ROUND + 12}"


@pytest.mark.parametrize(
    ("serial", "sequence", "rounds"),
    [
        pytest.param(-1, -1, 0, id="none"),
        pytest.param(0, 0, 0, id="the first"),
        pytest.param(TOP, TOP, 0, id="the last of the first round"),
        pytest.param(SECOND_ROUND, 0, 1, id="the first of the second round"),
        pytest.param(5 * SECOND_ROUND + 7, 7, 5, id="far on"),
    ],
)
def test_a_serial_is_a_sequence_and_a_round(serial: int, sequence: int, rounds: int) -> None:
    assert (sequence_of(serial), round_of(serial)) == (sequence, rounds)


@pytest.mark.parametrize(
    ("sequence", "expected", "serial"),
    [
        pytest.param(5, 5, 5, id="the expected one"),
        pytest.param(9, 5, 9, id="above"),
        pytest.param(1, 5, 1, id="below"),
        pytest.param(3, SECOND_ROUND - 2, SECOND_ROUND + 3, id="above, across the wrap"),
        pytest.param(TOP, SECOND_ROUND + 3, TOP, id="below, across the wrap"),
        pytest.param(2**30 - 1, 0, 2**30 - 1, id="as far above as can be"),
        pytest.param(2**30, SECOND_ROUND, 2**30, id="as far below as can be"),
    ],
)
def test_the_nearest_serial(sequence: int, expected: int, serial: int) -> None:
    assert nearest_serial(sequence, expected) == serial


# -- what is asked, what is said ---------------------------------------------------------------------


def test_rows_are_asked_for_only_below_the_remembered_batches() -> None:
    assert isinstance(judge(KNOWN, batch(8, 2)), LookBehind)
    assert not isinstance(judge(KNOWN, batch(10, 2)), LookBehind)
    assert not isinstance(judge(KNOWN, batch(20)), LookBehind)
    assert isinstance(judge(None, batch(19), newest_stored_serial=19), LookBehind)
    assert not isinstance(judge(None, batch(20), newest_stored_serial=19), LookBehind)


@pytest.mark.parametrize(
    ("incoming", "error", "words"),
    [
        (batch(21), OutOfOrderSequenceNumberError, "producer 7.*epoch 3.*21.*expected 20"),
        (batch(5, epoch=4), OutOfOrderSequenceNumberError, "epoch 4.*5.*expected 0"),
        (batch(0, epoch=2), InvalidProducerEpochError, "producer 7.*2.*3.*init_producer_id"),
        (batch(0, 3), OutOfOrderSequenceNumberError, "got sequence 0, expected 20, or a stored"),
        (batch(20), InvalidTxnStateError, "producer 7.*118"),
    ],
    ids=["gap", "newer epoch", "stale", "below the window", "plain in a transaction"],
)
def test_errors_say_what_was_found_and_what_was_expected(
    incoming: Incoming, error: type[Exception], words: str
) -> None:
    assert incoming.producer_epoch <= EPOCH + 1
    with pytest.raises(error, match=words):
        decide(OPEN, incoming)
