"""Ending a transaction under version 2 (KIP-890), in every state of a transactional id.

Goal: each transaction has an epoch of its own, a repeated end is known by the epoch before, and one that
was meant for an earlier transaction is refused. Method: one matrix as in `test_transaction`; the ids below
have been ended by version 2, so the pair before (7, 4) is the one that a repeat carries.
"""

from __future__ import annotations

import pytest

from eosdb.coordinator.transactions import decisions, ending
from eosdb.coordinator.transactions.decisions import FenceOngoing, Initialized
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.values import TransactionState
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FENCED,
    FRESH,
    NOW_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    START_MS,
    UNMAPPED,
    WAIT,
    WRONG_STATE,
    Request,
    add,
    answer,
    end,
    exhausted,
    given_pair,
    init,
    metadata,
)

COLUMNS = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)

ABORTED = "PrepareAbort 7/6"
ENDED_BY_VERSION_2 = {
    "commit": (
        end(committed=True, version=2),
        (WRONG_STATE, "PrepareCommit 7/6", FENCED, FENCED, WRONG_STATE, WRONG_STATE),
    ),
    "abort": (
        end(committed=False, version=2),
        (ABORTED, ABORTED, FENCED, FENCED, ABORTED, ABORTED),
    ),
    "commit repeated": (
        end(committed=True, epoch=4, version=2),
        (FENCED, FENCED, WAIT, WRONG_STATE, "fine", WRONG_STATE),
    ),
    "abort repeated": (
        end(committed=False, epoch=4, version=2),
        (FENCED, FENCED, WRONG_STATE, WAIT, WRONG_STATE, "fine"),
    ),
    "commit of an old client": (
        end(committed=True, version=1),
        (WRONG_STATE, "PrepareCommit 7/5", FENCED, FENCED, "fine", WRONG_STATE),
    ),
    "abort of an old client": (
        end(committed=False, version=1),
        (WRONG_STATE, "PrepareAbort 7/5", FENCED, FENCED, WRONG_STATE, "fine"),
    ),
    "commit repeated by an old client": (
        end(committed=True, epoch=4, version=1),
        6 * (FENCED,),
    ),
    "commit from two transactions ago": (end(committed=True, epoch=3, version=2), 6 * (FENCED,)),
    "abort from two transactions ago": (end(committed=False, epoch=3, version=2), 6 * (FENCED,)),
    "commit of another producer id": (end(committed=True, pid=8, version=2), 6 * (UNMAPPED,)),
    "needs a new producer id": (
        lambda current: ending.end_needs_new_producer_id(current, 2),
        6 * ("no",),
    ),
}
ENDED_BY_VERSION_1 = {
    "commit": (
        end(committed=True, version=2),
        (WRONG_STATE, "PrepareCommit 7/6", WAIT, WRONG_STATE, WRONG_STATE, WRONG_STATE),
    ),
    "abort": (
        end(committed=False, version=2),
        (ABORTED, ABORTED, WRONG_STATE, WAIT, ABORTED, ABORTED),
    ),
    "commit with the epoch before": (
        end(committed=True, epoch=4, version=2),
        (FENCED, FENCED, FENCED, WRONG_STATE, FENCED, WRONG_STATE),
    ),
}


def ended_by(version: int, state: TransactionState) -> TransactionMetadata:
    ending = state not in (EMPTY, ONGOING)
    return metadata(state, transaction_version=version if ending else 1)


@pytest.mark.parametrize(
    ("version", "request_", "state", "expected"),
    [
        pytest.param(version, request, state, expected, id=f"v{version} {name} - {state.label}")
        for version, matrix in ((1, ENDED_BY_VERSION_1), (2, ENDED_BY_VERSION_2))
        for name, (request, answers) in matrix.items()
        for state, expected in zip(COLUMNS, answers, strict=True)
    ],
)
def test_request_in_state(
    version: int, request_: Request, state: TransactionState, expected: str
) -> None:
    assert answer(request_, ended_by(version, state)) == expected


def life(current: TransactionMetadata, committed: bool = True) -> TransactionMetadata:
    """One whole transaction of the pair that the id is at."""
    begun = add(pid=current.producer_id, epoch=current.producer_epoch, groups=("g",))(current)
    assert begun is not None
    prepared = ending.end(
        begun, *current.producer, committed, NOW_MS, version=2, fresh_producer_id=FRESH
    )
    assert prepared is not None
    return ending.complete(prepared, NOW_MS)


def test_every_transaction_has_an_epoch_of_its_own() -> None:
    current = metadata(EMPTY)
    for epoch in range(6, 12):
        current = life(current, committed=epoch % 2 == 0)
        assert current.producer == (7, epoch)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    current = life(metadata(EMPTY, producer_epoch=32_765))
    assert current.producer == (7, 32_766)
    begun = add(epoch=32_766, groups=("g",))(current)
    assert ending.end_needs_new_producer_id(begun, 2)
    assert not ending.end_needs_new_producer_id(begun, 1)
    prepared = end(committed=True, epoch=32_766, version=2)(begun)
    assert prepared is not None
    assert prepared.producer == (7, 32_767), "the markers carry an epoch that no client ever has"
    done = ending.complete(prepared, NOW_MS)
    assert done.producer == (FRESH, 0)
    assert answer(end(committed=True, epoch=32_766, version=2), done) == "fine"
    assert answer(end(committed=False, epoch=32_766, version=2), done) == WRONG_STATE
    assert answer(end(committed=True, epoch=32_765, version=2), done) == UNMAPPED
    assert given_pair(init((7, 32_766))(done)) == (FRESH, 0)


def test_whoever_lost_the_answer_to_an_end_may_ask_with_init() -> None:
    ended = life(metadata(EMPTY))
    assert given_pair(init((7, 5))(ended)) == (7, 6)
    assert given_pair(init((7, 6))(ended)) == (7, 7)


@pytest.mark.parametrize(
    ("committed", "version", "while_ending", "afterwards"),
    [
        pytest.param(False, 2, WAIT, "fine", id="an abort has what it wants"),
        pytest.param(True, 2, WRONG_STATE, WRONG_STATE, id="a commit does not"),
        pytest.param(False, 1, FENCED, FENCED, id="version 1 knows no epoch but the newest: abort"),
        pytest.param(True, 1, FENCED, FENCED, id="version 1 knows no epoch but the newest: commit"),
    ],
)
@pytest.mark.parametrize("fenced_by", ["time-out", "new instance"])
def test_the_end_of_a_transaction_that_was_fenced(
    fenced_by: str, committed: bool, version: int, while_ending: str, afterwards: str
) -> None:
    """As Kafka 4.1.1 answers EndTxn version 5, and version 4."""
    if fenced_by == "time-out":
        prepared = decisions.abort_timed_out(metadata(ONGOING), START_MS + 5_000)
    else:
        verdict = init()(metadata(ONGOING))
        assert isinstance(verdict, FenceOngoing)
        prepared = verdict.prepared
    aborted = ending.complete(prepared, NOW_MS)
    assert aborted.producer == (7, 6)
    late = end(committed=committed, version=version)
    assert answer(late, prepared) == while_ending
    assert answer(late, aborted) == afterwards
    for newer in (init(), init((7, 5))):
        taken = newer(aborted)
        assert isinstance(taken, Initialized)
        assert answer(late, taken.metadata) == FENCED


def test_an_abort_that_a_fence_at_the_last_epoch_forestalled_is_given_no_epoch() -> None:
    """Kafka 4.1.1 hands out 32767 here, an epoch that nothing can fence: the id is stuck for ever."""
    overdue = decisions.abort_timed_out(exhausted(ONGOING), START_MS + 5_000)
    aborted = ending.complete(overdue, NOW_MS)
    for committed in (True, False):
        late = end(committed=committed, epoch=32_766, version=2)
        assert answer(late, overdue) == FENCED
        assert answer(late, aborted) == FENCED
