"""What a partition accepts from a producer: batches.

Goal: every row of Kafka's decision tables (ProducerAppendInfo, ProducerStateEntry) and every addition
of docs/semantics.md has its answer. Method: the table `sequences`; then what it does not tell of.
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
from tests.cases import each
from tests.log.producer_batches import EPOCH, TOP, Row, answer, batch, decide, entry
from tests.log.sequences import (
    ALL,
    CASES,
    OUT_OF_ORDER,
    SECOND_ROUND,
    STALE,
    WRONG_STATE,
    Case,
)

ROWS = ALL.batches
KNOWN = ALL.known


@each("case", CASES)
def test_a_batch_after_what_came_before(case: Case) -> None:
    assert answer(case.past.known, case.incoming, case.past.rows) == case.answer


def test_nor_does_one_that_expired_and_came_back_higher_know_what_was_below() -> None:
    back = entry([Row(40, 2, 200)])
    assert answer(back, batch(20, 5), [*ROWS, Row(40, 2, 200)]) == OUT_OF_ORDER


def test_a_stored_batch_above_the_remembered_ones_is_a_repeat_too() -> None:
    # The producer expired, the rows below 10 are deleted, and then a very late batch came once more.
    late = entry([Row(0, 2, 500)])
    assert answer(late, batch(14, 2), [*ROWS[5:], Row(0, 2, 500)]) == "stored at 114 to 115"


# -- open transactions -------------------------------------------------------------------------------

OPEN = entry(ROWS[5:], current_txn_first_offset=118)


@each(
    ("incoming", "expected"),
    [
        pytest.param(batch(20, transactional=True), "new at 20", id="goes on"),
        pytest.param(batch(20), WRONG_STATE, id="a plain batch"),
        pytest.param(batch(18, 2), "stored at 118 to 119", id="a plain repeat is found first"),
        pytest.param(batch(18, 2, transactional=True), "stored at 118 to 119", id="a repeat"),
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


def test_the_same_sequence_one_round_later_is_another() -> None:
    at_10 = entry([Row(SECOND_ROUND + 8, 2, 900)])
    assert answer(at_10, batch(10, 2), [Row(10, 2, 110)]) == f"new at {SECOND_ROUND + 10}"


def test_a_repeat_of_the_second_round_is_not_taken_for_one_of_the_first() -> None:
    second = Row(SECOND_ROUND + 10, 2, 910)
    rows = [Row(10, 2, 110), second]
    assert answer(entry([second]), batch(10, 2), rows) == "stored at 910 to 911"
    assert answer(None, batch(10, 2), rows) == "stored at 910 to 911"
    assert answer(None, batch(12), rows) == f"new at {SECOND_ROUND + 12}"


@each(
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


@each(
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
        (batch(0, 3), OutOfOrderSequenceNumberError, "got sequence 0, expected 20, or a repeat"),
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
