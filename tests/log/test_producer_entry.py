"""What a partition remembers of a producer, and which markers it takes.

Goal: after each append and each marker the next decision finds what Kafka's ProducerStateEntry would hold.
Method: fold by hand, field by field; then markers against every relation of the two epochs.
"""

from __future__ import annotations

import pytest

from eosdb.errors import ApiError
from eosdb.log.producer_state import BatchMetadata, ProducerStateEntry, check_marker
from tests.cases import each
from tests.log.producer_batches import Row, batch, decide, entry

BATCH = BatchMetadata(base_serial=2, last_serial=4, base_offset=12, last_offset=14, timestamp=777)
BEFORE = ProducerStateEntry(
    producer_id=7,
    producer_epoch=3,
    coordinator_epoch=9,
    last_timestamp=111,
    last_append_time=222,
    current_txn_first_offset=-1,
    batches=(Row(0, 2, 10).metadata(),),
)
IN_TRANSACTION = BEFORE._replace(current_txn_first_offset=10)


def test_a_new_entry_knows_nothing() -> None:
    new = ProducerStateEntry(7, 0)
    assert (new.last_serial, new.last_offset, new.batches) == (-1, -1, ())
    assert (new.coordinator_epoch, new.last_timestamp, new.current_txn_first_offset) == (-1, -1, -1)


def test_an_append_is_remembered() -> None:
    assert BEFORE.after_append(3, BATCH, False, now_ms=999) == ProducerStateEntry(
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=9,
        last_timestamp=777,
        last_append_time=999,
        current_txn_first_offset=-1,
        batches=(*BEFORE.batches, BATCH),
    )


def test_five_batches_are_remembered() -> None:
    known = ProducerStateEntry(7, 3)
    rows = [Row(serial, 1, 100 + serial) for serial in range(9)]
    for count, row in enumerate(rows, 1):
        known = known.after_append(3, row.metadata(), False, 0)
        assert known.batches == tuple(r.metadata() for r in rows[max(count - 5, 0) : count])
        assert (known.last_serial, known.last_offset) == (row.last_serial, row.last_offset)


def test_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    first = Row(0, 1, 12).metadata()
    after = BEFORE.after_append(4, first, False, 0)
    assert (after.producer_epoch, after.batches) == (4, (first,))
    assert after.coordinator_epoch == 9


def test_a_batch_without_sequence_leaves_the_remembered_ones() -> None:
    unsequenced = BatchMetadata(-1, -1, 12, 14, 777)
    after = BEFORE.after_append(3, unsequenced, True, 0)
    assert after.batches == BEFORE.batches
    assert after.current_txn_first_offset == 12


@pytest.mark.parametrize(
    ("before", "transactional", "first_offset"),
    [
        pytest.param(BEFORE, False, -1, id="a plain batch opens nothing"),
        pytest.param(BEFORE, True, 12, id="a transactional batch opens at its first offset"),
        pytest.param(IN_TRANSACTION, True, 10, id="the next one leaves that offset"),
    ],
)
def test_where_the_open_transaction_begins(
    before: ProducerStateEntry, transactional: bool, first_offset: int
) -> None:
    assert before.after_append(3, BATCH, transactional, 0).current_txn_first_offset == first_offset


def test_a_transaction_may_begin_at_offset_0() -> None:
    first = Row(0, 1, 0).metadata()
    opened = ProducerStateEntry(7, 3).after_append(3, first, True, 0)
    assert opened.current_txn_first_offset == 0
    later = opened.after_append(3, Row(1, 1, 1).metadata(), True, 0)
    assert later.current_txn_first_offset == 0


@each(
    ("epoch", "kept"),
    [
        pytest.param(3, True, id="the same epoch goes on with its sequences"),
        pytest.param(4, False, id="a newer epoch starts anew"),
    ],
)
def test_a_marker_ends_the_transaction(epoch: int, kept: bool) -> None:
    assert IN_TRANSACTION.after_marker(epoch, 11, now_ms=555) == ProducerStateEntry(
        producer_id=7,
        producer_epoch=epoch,
        coordinator_epoch=11,
        last_timestamp=555,
        last_append_time=555,
        current_txn_first_offset=-1,
        batches=BEFORE.batches if kept else (),
    )


def test_after_a_marker_of_a_newer_epoch_the_old_one_is_fenced_and_the_new_one_starts_at_0() -> (
    None
):
    fenced = entry([Row(0, 2, 10)]).after_marker(4, 0, 0)
    assert decide(fenced, batch(0, epoch=4)).base_serial == 0  # type: ignore[union-attr]
    for incoming in (batch(2, epoch=3), batch(2, epoch=4)):
        with pytest.raises(ApiError):
            decide(fenced, incoming)


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on_and_repeats_are_known() -> None:
    ended = entry([Row(0, 2, 10)], current_txn_first_offset=10).after_marker(3, 0, 0)
    assert decide(ended, batch(2)).base_serial == 2  # type: ignore[union-attr]
    assert decide(ended, batch(0, 2)).base_offset == 10  # type: ignore[union-attr]


@each(
    ("epoch", "coordinator_epoch", "error"),
    [
        pytest.param(3, 9, None, id="both equal"),
        pytest.param(3, 10, None, id="a newer coordinator"),
        pytest.param(4, 9, None, id="a newer producer"),
        pytest.param(4, 10, None, id="both newer"),
        pytest.param(2, 9, "INVALID_PRODUCER_EPOCH", id="an older producer"),
        pytest.param(2, 10, "INVALID_PRODUCER_EPOCH", id="an older producer, a newer coordinator"),
        pytest.param(3, 8, "TRANSACTION_COORDINATOR_FENCED", id="an older coordinator"),
        pytest.param(4, 8, "TRANSACTION_COORDINATOR_FENCED", id="a newer producer, an older one"),
        pytest.param(2, 8, "INVALID_PRODUCER_EPOCH", id="both older: the producer comes first"),
    ],
)
@each("known", [BEFORE, IN_TRANSACTION])
def test_markers(
    known: ProducerStateEntry, epoch: int, coordinator_epoch: int, error: str | None
) -> None:
    if error is None:
        check_marker(known, epoch, coordinator_epoch)
        return
    with pytest.raises(ApiError) as raised:
        check_marker(known, epoch, coordinator_epoch)
    assert raised.value.name == error


@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 1000])
def test_a_partition_without_state_takes_any_marker(coordinator_epoch: int) -> None:
    check_marker(None, 0, coordinator_epoch)


def test_a_producer_without_marker_so_far_takes_any_coordinator() -> None:
    check_marker(entry([Row(0, 1, 0)]), 3, 0)
