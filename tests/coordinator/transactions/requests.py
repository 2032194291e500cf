"""A transactional id called shop in any state, the requests that may meet it, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import eosdb
from eosdb.coordinator.transactions import decisions, rows
from eosdb.coordinator.transactions.state import (
    FreshProducerIdNeededError,
    IllegalTransitionError,
    TransactionMetadata,
)
from eosdb.errors import ApiError
from eosdb.model.values import ProducerIdAndEpoch, TopicPartition, TransactionState
from eosdb.store.counters import set_counter

UNMAPPED = "INVALID_PRODUCER_ID_MAPPING"
FENCED = "PRODUCER_FENCED"
WAIT = "CONCURRENT_TRANSACTIONS"
NEEDED = "needs a new id"
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


def exhausted(state: TransactionState = EMPTY, **changes: Any) -> TransactionMetadata:
    return metadata(state, **{"producer_epoch": 32766, "last_producer_epoch": 32765, **changes})


Current = TransactionMetadata | None
T_co = TypeVar("T_co", covariant=True)


@contextmanager
def opened(path: Path) -> Iterator[eosdb.Database]:
    """A file for `Served`, whose next producer id is the fresh one of the table."""
    clock = eosdb.ManualClock(start_ms=UPDATE_MS)
    with eosdb.connect(path, clock=clock, durability="off") as db:
        for tp in (ORDERS, REFUNDS):
            db.admin.create_topic(tp.topic)
        db._store.write(lambda unit: set_counter(unit, "next_producer_id", FRESH))
        yield db


class Served:
    """An id `shop` in a file, and who answers requests about it; each answer is "fine" or an error's name.

    `number` keeps several of them apart, with producer ids of their own.
    """

    def __init__(self, db: eosdb.Database, number: int = 0) -> None:
        self.db, self.name, self._above = db, f"shop {number}", 1_000 * number

    def begin_in(self, current: TransactionMetadata) -> None:
        """Makes the id what it is when the requests come."""
        known = current._replace(
            transactional_id=self.name,
            producer_id=self.pid(current.producer_id),
            previous_producer_id=self.pid(current.previous_producer_id),
        )
        self.db._store.write(lambda unit: rows.record(unit, None, known, UPDATE_MS))

    def pid(self, producer_id: int) -> int:
        return producer_id + self._above if producer_id >= 0 else producer_id

    def shown(self) -> str:
        found = self.db.broker.describe_transactions([self.name])[self.name]
        return f"{found.state} {found.producer_id - self._above}/{found.producer_epoch}"

    def time_out(self) -> str:
        assert isinstance(self.db.clock, eosdb.ManualClock)
        self.db.clock.advance(TIMEOUT_MS)
        self.db.housekeeping()
        return "fine"

    def init(self, expected: tuple[int, int] | None) -> str:
        raise NotImplementedError

    def add(self, pid: int, epoch: int, partitions: Any, groups: Any) -> str:
        raise NotImplementedError

    def end(self, pid: int, epoch: int, committed: bool, version: int) -> str:
        raise NotImplementedError

    def verify(
        self, pid: int, epoch: int, partition: TopicPartition | None, group: str | None
    ) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Request(Generic[T_co]):
    """What is asked about the id: of the decision, by a call, and of who serves it."""

    decide: Callable[[Any], T_co]
    name: str = ""
    """That of `Served`; "" for what nobody can ask for."""
    fields: dict[str, Any] = field(default_factory=dict)

    def __call__(self, current: Current) -> T_co:
        return self.decide(current)

    def ask(self, served: Served) -> str:
        told: str = getattr(served, self.name)(**self.fields)
        return told


def init(
    expected: tuple[int, int] | None = None, fresh: int | None = FRESH, now_ms: int = NOW_MS
) -> Request[TransactionMetadata]:
    pair = None if expected is None else ProducerIdAndEpoch(*expected)
    return Request(
        lambda current: decisions.init_producer_id(current, "shop", 2_000, pair, fresh, now_ms),
        "init", {"expected": expected},
    )  # fmt: skip


def add(
    *partitions: TopicPartition,
    pid: int = 7,
    epoch: int = 5,
    groups: tuple[str, ...] = (),
    now_ms: int = NOW_MS,
) -> Request[Current]:
    return Request(
        lambda current: decisions.add_to_transaction(
            current, pid, epoch, frozenset(partitions), frozenset(groups), now_ms
        ),
        "add", {"pid": pid, "epoch": epoch, "partitions": partitions, "groups": groups},
    )  # fmt: skip


def end(
    *,
    committed: bool,
    pid: int = 7,
    epoch: int = 5,
    now_ms: int = NOW_MS,
    version: int = 1,
    fresh: int | None = FRESH,
) -> Request[Current]:
    return Request(
        lambda current: decisions.end(
            current, pid, epoch, committed, now_ms, version=version, fresh_producer_id=fresh
        ),
        "end", {"pid": pid, "epoch": epoch, "committed": committed, "version": version},
    )  # fmt: skip


def verify(
    partition: TopicPartition | None = None, group: str | None = None, pid: int = 7, epoch: int = 5
) -> Request[None]:
    wanted = partition or group
    assert wanted is not None
    return Request(
        lambda current: decisions.verify(current, pid, epoch, wanted),
        "verify", {"pid": pid, "epoch": epoch, "partition": partition, "group": group},
    )  # fmt: skip


def time_out() -> Request[Current]:
    return Request(
        lambda current: decisions.fence(current, START_MS + TIMEOUT_MS + 1),
        "time_out",
    )


def left_by(result: object) -> TransactionMetadata | None:
    """What is to be written; None if nothing is."""
    return result if isinstance(result, TransactionMetadata) else None


def answer(request: Callable[[Any], object], current: Current) -> str:
    """What the request comes to, in a word or two."""
    try:
        result = request(current)
    except ApiError as error:
        return error.name
    except IllegalTransitionError:
        return "bug"
    except FreshProducerIdNeededError:
        return NEEDED
    if found := left_by(result):
        return f"{found.state.label} {found.producer_id}/{found.producer_epoch}"
    return {None: "fine", True: "yes", False: "no"}[result]  # type: ignore[index]


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
