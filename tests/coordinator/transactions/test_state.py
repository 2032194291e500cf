"""Which value of a transactional id may follow which.

Goal: a bug in a decision is stopped before it is written. Method: all pairs of states against a second
table, written the other way round, and every kind of change that does not go with its state.
"""

from __future__ import annotations

from typing import Any

import pytest

from eosdb.coordinator.transactions.state import LEGAL_PREVIOUS, IllegalTransitionError, transition
from eosdb.model.values import TransactionState
from tests.cases import each
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    ORDERS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    START_MS,
    STEPS,
    exhausted,
    metadata,
)


def fitting(old: TransactionState, new: TransactionState) -> dict[str, Any]:
    """Changes that go with the new state, so that only the table can object."""
    changes: dict[str, Any] = {"state": new}
    if new is EMPTY:
        changes |= {"partitions": frozenset(), "groups": frozenset(), "start_time_ms": -1}
    elif new is ONGOING:
        changes |= {"start_time_ms": START_MS}
    elif new is PREPARE_EPOCH_FENCE:
        changes |= {"producer_epoch": 6}
    elif new is PREPARE_ABORT and old in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        changes |= {"producer_epoch": 6, "transaction_version": 2}
    elif new in (COMPLETE_COMMIT, COMPLETE_ABORT):
        changes |= {"partitions": frozenset(), "groups": frozenset()}
    return changes


@each(
    ("state", "is_decided", "is_complete", "may_expire"),
    [
        (EMPTY, False, False, True),
        (ONGOING, False, False, False),
        (PREPARE_COMMIT, True, False, False),
        (PREPARE_ABORT, True, False, False),
        (COMPLETE_COMMIT, False, True, True),
        (COMPLETE_ABORT, False, True, True),
        (DEAD, False, False, False),
        (PREPARE_EPOCH_FENCE, False, False, False),
    ],
)
def test_a_state_says_what_is_true_of_it(
    state: TransactionState, is_decided: bool, is_complete: bool, may_expire: bool
) -> None:
    assert (state.is_decided, state.is_complete, state.may_expire) == (
        is_decided, is_complete, may_expire,
    )  # fmt: skip


def test_the_table_is_kafkas() -> None:
    assert {(old, new) for new, olds in LEGAL_PREVIOUS.items() for old in olds} == {
        step for step, legal in STEPS.items() if legal
    }


@each(
    ("old", "new", "legal"),
    [
        pytest.param(old, new, legal, id=f"{old.label} to {new.label}")
        for (old, new), legal in STEPS.items()
    ],
)
def test_transition_allows_what_the_table_allows(
    old: TransactionState, new: TransactionState, legal: bool
) -> None:
    changes = fitting(old, new)
    if legal:
        assert transition(metadata(old), **changes) == metadata(old)._replace(**changes)
    else:
        with pytest.raises(IllegalTransitionError, match=f"{old.label} to {new.label}"):
            transition(metadata(old), **changes)


@each(("old", "new", "wrong"), [
        pytest.param(EMPTY, EMPTY, {"producer_epoch": 4}, id="init with a lower epoch"),
        pytest.param(EMPTY, EMPTY, {"producer_epoch": 7}, id="init over two epochs"),
        pytest.param(EMPTY, EMPTY, {"producer_id": 8}, id="a new id not at epoch 0"),
        pytest.param(EMPTY, EMPTY, {"groups": frozenset({"g"})}, id="init with a group"),
        pytest.param(EMPTY, EMPTY, {"partitions": frozenset({ORDERS})}, id="init with a partition"),
        pytest.param(EMPTY, EMPTY, {"start_time_ms": 1}, id="init with a start time"),
        pytest.param(EMPTY, ONGOING, {"start_time_ms": -1}, id="begun without start time"),
        pytest.param(ONGOING, ONGOING, {"partitions": frozenset()}, id="a partition left"),
        pytest.param(ONGOING, ONGOING, {"groups": frozenset()}, id="a group left"),
        pytest.param(ONGOING, ONGOING, {"producer_epoch": 6}, id="the epoch moved while open"),
        pytest.param(ONGOING, ONGOING, {"timeout_ms": 1}, id="a shorter timeout while open"),
        pytest.param(EMPTY, ONGOING, {"timeout_ms": 9_000}, id="begun with a longer timeout"),
        pytest.param(ONGOING, PREPARE_COMMIT, {"producer_epoch": 6}, id="commit with a bump"),
        pytest.param(ONGOING, PREPARE_ABORT, {"producer_epoch": 6}, id="abort with a bump, no fence"),
        pytest.param(ONGOING, PREPARE_COMMIT, {"timeout_ms": 1}, id="commit with another timeout"),
        pytest.param(ONGOING, PREPARE_COMMIT, {"start_time_ms": 1}, id="commit with another start"),
        pytest.param(ONGOING, PREPARE_COMMIT, {"partitions": frozenset()}, id="commit without them"),
        pytest.param(ONGOING, PREPARE_COMMIT, {"groups": frozenset({"billing", "x"})}, id="or more"),
        pytest.param(ONGOING, PREPARE_EPOCH_FENCE, {"producer_epoch": 5}, id="a fence without bump"),
        pytest.param(ONGOING, PREPARE_EPOCH_FENCE, {"producer_id": 8}, id="a fence of another id"),
        pytest.param(PREPARE_COMMIT, COMPLETE_COMMIT, {"start_time_ms": -1}, id="lost its start"),
        pytest.param(PREPARE_COMMIT, COMPLETE_COMMIT, {"producer_id": 8}, id="lost its producer"),
        pytest.param(PREPARE_COMMIT, COMPLETE_COMMIT, {"partitions": frozenset({ORDERS})}, id="kept"),
        pytest.param(PREPARE_ABORT, COMPLETE_ABORT, {"groups": frozenset({"g"})}, id="kept a group"),
    ])  # fmt: skip
def test_transition_refuses_changes_that_do_not_go_with_the_state(
    old: TransactionState, new: TransactionState, wrong: dict[str, Any]
) -> None:
    with pytest.raises(IllegalTransitionError, match="but "):
        transition(metadata(old), **(fitting(old, new) | wrong))


def test_no_client_gets_the_fencing_epoch() -> None:
    with pytest.raises(IllegalTransitionError, match="fencing"):
        transition(exhausted(), state=EMPTY, producer_epoch=32767)
