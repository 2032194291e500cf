"""A transactional id called shop in any state, the requests that may meet it, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosdb.coordinator.transactions import decisions, ending
from eosdb.coordinator.transactions.decisions import (
    FenceOngoing,
    IllegalTransitionError,
    Initialized,
    TransactionMetadata,
)
from eosdb.errors import (
    ApiError,
)
from eosdb.model.values import ProducerIdAndEpoch, TopicPartition, TransactionState

UNMAPPED = "INVALID_PRODUCER_ID_MAPPING"
FENCED = "PRODUCER_FENCED"
WAIT = "CONCURRENT_TRANSACTIONS"
WRONG_STATE = "INVALID_TXN_STATE"
STALE = "INVALID_PRODUCER_EPOCH"

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

ORDERS = TopicPartition("orders", 0)
REFUNDS = TopicPartition("refunds", 0)
HALF_WAY = frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE})
TIMEOUT_MS = 1_000
START_MS = 10_000
UPDATE_MS = 10_500
NOW_MS = 20_000
FRESH = 100


def metadata(state: TransactionState, **changes: Any) -> TransactionMetadata:
    """Producer 7 at epoch 5, which it got for epoch 4, in the state."""
    inside = state in HALF_WAY
    usual = TransactionMetadata(
        transactional_id="shop",
        producer_id=7,
        producer_epoch=5,
        last_producer_epoch=4,
        previous_producer_id=7,
        state=state,
        timeout_ms=TIMEOUT_MS,
        start_time_ms=-1 if state is EMPTY else START_MS,
        last_update_time_ms=UPDATE_MS,
        partitions=frozenset({ORDERS}) if inside else frozenset(),
        groups=frozenset({"billing"}) if inside else frozenset(),
    )
    return usual._replace(**changes)


Current = TransactionMetadata | None
Request = Callable[[Any], object]


def init(
    expected: tuple[int, int] | None = None, fresh: int | None = FRESH, now_ms: int = NOW_MS
) -> Callable[[Current], Initialized | FenceOngoing]:
    pair = None if expected is None else ProducerIdAndEpoch(*expected)
    return lambda current: decisions.init_producer_id(current, "shop", 2_000, pair, fresh, now_ms)


def add(
    *partitions: TopicPartition,
    pid: int = 7,
    epoch: int = 5,
    groups: tuple[str, ...] = (),
    now_ms: int = NOW_MS,
) -> Callable[[Current], Current]:
    return lambda current: decisions.add_to_transaction(
        current, pid, epoch, frozenset(partitions), frozenset(groups), now_ms
    )


def end(
    *, committed: bool, pid: int = 7, epoch: int = 5, now_ms: int = NOW_MS, version: int = 1
) -> Callable[[Current], Current]:
    return lambda current: ending.end(
        current, pid, epoch, committed, now_ms, version=version, fresh_producer_id=FRESH
    )


def verify(
    partition: TopicPartition | None = None,
    group: str | None = None,
    pid: int = 7,
    epoch: int = 5,
) -> Callable[[Current], None]:
    return lambda current: decisions.verify(current, pid, epoch, partition=partition, group=group)


def given_pair(result: object) -> tuple[int, int]:
    assert isinstance(result, Initialized)
    return result.metadata.producer


def answer(request: Request, current: Current) -> str:
    """What the request comes to, in a word or two."""
    try:
        result = request(current)
    except ApiError as error:
        return error.name
    except IllegalTransitionError:
        return "bug"
    match result:
        case Initialized(found):
            return f"{found.state.label} {found.producer_id}/{found.producer_epoch}"
        case FenceOngoing(found):
            return f"fence {found.state.label} {found.producer_id}/{found.producer_epoch}"
        case TransactionMetadata() as found:
            return f"{found.state.label} {found.producer_id}/{found.producer_epoch}"
        case None:
            return "fine"
        case _:
            return "yes" if result else "no"


def exhausted(state: TransactionState = EMPTY, **changes: Any) -> TransactionMetadata:
    return metadata(state, **{"producer_epoch": 32766, "last_producer_epoch": 32765, **changes})


FOLLOWERS = {
    "Empty": "Empty Ongoing PrepareAbort Dead",
    "Ongoing": "Ongoing PrepareCommit PrepareAbort PrepareEpochFence",
    "PrepareCommit": "CompleteCommit",
    "PrepareAbort": "CompleteAbort",
    "CompleteCommit": "Empty Ongoing PrepareAbort Dead",
    "CompleteAbort": "Empty Ongoing PrepareAbort Dead",
    "Dead": "",
    "PrepareEpochFence": "PrepareAbort",
}
STEPS = {
    (old, new): new.label in FOLLOWERS[old.label].split()
    for old in TransactionState
    for new in TransactionState
}
"""Every step from state to state, and whether it is legal."""
