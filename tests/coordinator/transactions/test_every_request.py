"""Every request in every state of a transactional id.

Goal: each cell of Kafka's tables has the answer that docs/semantics.md promises. Method: one matrix of all
eight states, and of the unknown id, against every request, written out as text.
"""

from __future__ import annotations

import pytest

from eosdb.coordinator.transactions import decisions, ending
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from eosdb.model.values import ProducerIdAndEpoch, TopicPartition, TransactionState
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    FENCED,
    NOW_MS,
    ONGOING,
    ORDERS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    REFUNDS,
    STALE,
    START_MS,
    TIMEOUT_MS,
    UNMAPPED,
    WAIT,
    WRONG_STATE,
    Request,
    add,
    answer,
    end,
    init,
    metadata,
    verify,
)

RETRY = "NOT_ENOUGH_REPLICAS"
NEW = "Empty 100/0"

COLUMNS = (
    None, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT,
    DEAD, PREPARE_EPOCH_FENCE,
)  # fmt: skip

NOBODY = (UNMAPPED,) + 8 * (FENCED,)
STRANGER = 9 * (UNMAPPED,)

MATRIX: dict[str, tuple[Request, tuple[str | None, ...]]] = {
    "init by a new instance": (
        init(),
        (NEW, "Empty 7/6", "fence PrepareAbort 7/6", WAIT, WAIT, "Empty 7/6", "Empty 7/6", "bug", "bug"),
    ),
    "init with the current pair": (
        init((7, 5)),
        (NEW, "Empty 7/6", "fence PrepareAbort 7/6", WAIT, WAIT, "Empty 7/6", "Empty 7/6", "bug", "bug"),
    ),
    "init repeated with the replaced pair": (
        init((7, 4)),
        (NEW, "Empty 7/5", FENCED, WAIT, WAIT, "Empty 7/5", "Empty 7/5", "bug", "bug"),
    ),
    "init with an epoch from long ago": (
        init((7, 3)),
        (NEW, FENCED, FENCED, WAIT, WAIT, FENCED, FENCED, FENCED, FENCED),
    ),
    "init with an epoch of the future": (
        init((7, 6)),
        (NEW, FENCED, FENCED, WAIT, WAIT, FENCED, FENCED, FENCED, FENCED),
    ),
    "init with another producer id": (init((8, 5)), (NEW,) + 8 * (FENCED,)),
    "init with another id at its last epoch": (init((8, 32766)), (NEW,) + 8 * (FENCED,)),
    "add a new partition": (
        add(REFUNDS),
        (UNMAPPED, "Ongoing 7/5", "Ongoing 7/5", WAIT, WAIT, "Ongoing 7/5", "Ongoing 7/5", "bug", "bug"),
    ),
    "add a partition that is in it": (
        add(ORDERS),
        (UNMAPPED, "Ongoing 7/5", "fine", WAIT, WAIT, "Ongoing 7/5", "Ongoing 7/5", "bug", "bug"),
    ),
    "add a new group": (
        add(groups=("audit",)),
        (UNMAPPED, "Ongoing 7/5", "Ongoing 7/5", WAIT, WAIT, "Ongoing 7/5", "Ongoing 7/5", "bug", "bug"),
    ),
    "add a group that is in it": (
        add(groups=("billing",)),
        (UNMAPPED, "Ongoing 7/5", "fine", WAIT, WAIT, "Ongoing 7/5", "Ongoing 7/5", "bug", "bug"),
    ),
    "add with an older epoch": (add(REFUNDS, epoch=4), NOBODY),
    "add with a newer epoch": (add(REFUNDS, epoch=6), NOBODY),
    "add with another producer id": (add(REFUNDS, pid=8), STRANGER),
    "add with another id and epoch": (add(REFUNDS, pid=8, epoch=4), STRANGER),
    "commit": (
        end(committed=True),
        (UNMAPPED, WRONG_STATE, "PrepareCommit 7/5", WAIT, WRONG_STATE, "fine", WRONG_STATE, "bug", "bug"),
    ),
    "abort": (
        end(committed=False),
        (UNMAPPED, WRONG_STATE, "PrepareAbort 7/5", WRONG_STATE, WAIT, WRONG_STATE, "fine", "bug", "bug"),
    ),
    "commit with an older epoch": (end(committed=True, epoch=4), NOBODY),
    "commit with a newer epoch": (end(committed=True, epoch=6), NOBODY),
    "abort with an older epoch": (end(committed=False, epoch=4), NOBODY),
    "abort with a newer epoch": (end(committed=False, epoch=6), NOBODY),
    "commit with another producer id": (end(committed=True, pid=8), STRANGER),
    "abort with another producer id": (end(committed=False, pid=8, epoch=4), STRANGER),
    "complete": (
        lambda current: ending.complete(current, NOW_MS),
        (None, "bug", "bug", "CompleteCommit 7/5", "CompleteAbort 7/5", "bug", "bug", "bug", "bug"),
    ),
    "timed out, after the deadline": (
        lambda current: decisions.is_timed_out(current, START_MS + TIMEOUT_MS + 1),
        (None, "no", "yes", "no", "no", "no", "no", "no", "no"),
    ),
    "abort as timed out, after the deadline": (
        lambda current: decisions.abort_timed_out(current, START_MS + TIMEOUT_MS + 1),
        (None, "bug", "PrepareAbort 7/6", "bug", "bug", "bug", "bug", "bug", "bug"),
    ),
    "needs a new producer id": (
        decisions.needs_new_producer_id,
        ("yes", "no", "no", "no", "no", "no", "no", "no", "no"),
    ),
    "verify a partition that is in it": (
        verify(ORDERS),
        (UNMAPPED, WRONG_STATE, "fine", RETRY, RETRY, WRONG_STATE, WRONG_STATE, WRONG_STATE, WRONG_STATE),
    ),
    "verify a partition that is not in it": (
        verify(REFUNDS),
        (UNMAPPED, WRONG_STATE, WRONG_STATE, RETRY, RETRY) + 4 * (WRONG_STATE,),
    ),
    "verify a group that is in it": (
        verify(group="billing"),
        (UNMAPPED, WRONG_STATE, "fine", RETRY, RETRY, WRONG_STATE, WRONG_STATE, WRONG_STATE, WRONG_STATE),
    ),
    "verify a group that is not in it": (
        verify(group="audit"),
        (UNMAPPED, WRONG_STATE, WRONG_STATE, RETRY, RETRY) + 4 * (WRONG_STATE,),
    ),
    "verify with an older epoch": (verify(ORDERS, epoch=4), (UNMAPPED,) + 8 * (STALE,)),
    "verify with a newer epoch": (verify(ORDERS, epoch=6), (UNMAPPED,) + 8 * (STALE,)),
    "verify with another producer id": (verify(ORDERS, pid=8, epoch=4), STRANGER),
}  # fmt: skip


def test_the_matrix_has_every_state_in_every_row() -> None:
    assert set(COLUMNS) == {None, *TransactionState}
    assert {len(cells) for _, cells in MATRIX.values()} == {len(COLUMNS)}


@pytest.mark.parametrize(
    ("request_", "state", "expected"),
    [
        pytest.param(
            request, state, cell, id=f"{name} - {'unknown id' if state is None else state.label}"
        )
        for name, (request, cells) in MATRIX.items()
        for state, cell in zip(COLUMNS, cells, strict=True)
        if cell is not None
    ],
)
def test_request_in_state(request_: Request, state: TransactionState | None, expected: str) -> None:
    assert answer(request_, None if state is None else metadata(state)) == expected


# -- what a request must say -------------------------------------------------------------------------


def test_an_expectation_is_a_whole_pair_or_none() -> None:
    assert decisions.expected_or_none(-1, -1) is None
    assert decisions.expected_or_none(0, 0) == ProducerIdAndEpoch(0, 0)


@pytest.mark.parametrize(("pid", "epoch"), [(7, -1), (-1, 5)], ids=["no epoch", "no id"])
def test_half_an_expectation_is_refused(pid: int, epoch: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{pid} .* {epoch}"):
        decisions.expected_or_none(pid, epoch)


@pytest.mark.parametrize(
    ("partition", "group"), [(None, None), (ORDERS, "billing")], ids=["neither", "both"]
)
def test_verification_asks_for_one_thing(
    partition: TopicPartition | None, group: str | None
) -> None:
    with pytest.raises(TypeError):
        verify(partition, group)(metadata(ONGOING))


@pytest.mark.parametrize(
    ("request_", "state", "error", "words"),
    [
        (init((7, 3)), EMPTY, ProducerFencedError, r"'shop'.*epoch 3.*epoch 5.*close"),
        (init(), PREPARE_COMMIT, ConcurrentTransactionsError, r"'shop'.*PrepareCommit.*again"),
        (add(pid=8), EMPTY, InvalidProducerIdMappingError, r"'shop'.*8.*7.*init_producer_id"),
        (
            end(committed=True),
            EMPTY,
            InvalidTxnStateError,
            r"commit in state Empty.*CompleteCommit",
        ),
        (verify(REFUNDS), ONGOING, InvalidTxnStateError, r"refunds-0.*add_partitions_to_txn"),
        (verify(group="audit"), EMPTY, InvalidTxnStateError, r"'audit'.*Empty.*add_offsets_to_txn"),
        (verify(ORDERS, epoch=4), ONGOING, InvalidProducerEpochError, r"epoch 4.*epoch 5"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_errors_say_what_was_found_and_what_to_do(
    request_: Request, state: TransactionState, error: type[ApiError], words: str
) -> None:
    with pytest.raises(error, match=words):
        request_(metadata(state))
