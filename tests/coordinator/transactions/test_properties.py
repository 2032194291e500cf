"""Random requests to one transactional id.

Goal: the promises that no table of cells can show: an epoch never falls, no pair is handed to two,
no step is illegal, an end stays what it was. Method: single steps from random values, then a state
machine of clients that repeat, overtake and outlive each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eosdb.coordinator.transactions import decisions, ending
from eosdb.coordinator.transactions.decisions import FenceOngoing, TransactionMetadata
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    ProducerFencedError,
)
from eosdb.model.values import TopicPartition, TransactionState
from tests.coordinator.transactions.requests import (
    DEAD,
    EMPTY,
    FENCED,
    FRESH,
    HALF_WAY,
    NOW_MS,
    ORDERS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    REFUNDS,
    STEPS,
    TIMEOUT_MS,
    UNMAPPED,
    WAIT,
    WRONG_STATE,
    Current,
    Request,
    add,
    answer,
    end,
    given_pair,
    init,
    metadata,
)

pytestmark = pytest.mark.slow

EXPIRATION_MS = 5_000
STORED = [s for s in TransactionState if s not in (DEAD, PREPARE_EPOCH_FENCE)]
PAIRS = st.tuples(st.sampled_from([7, FRESH]), st.sampled_from([0, 4, 5, 6, 32765, 32766]))


@st.composite
def stored(draw: st.DrawFn) -> TransactionMetadata:
    return metadata(
        draw(st.sampled_from(STORED)),
        producer_epoch=draw(st.sampled_from([5, 32765, 32766])),
        last_producer_epoch=draw(st.sampled_from([-1, 4, 32765, 32766])),
        previous_producer_id=draw(st.sampled_from([-1, 6, 7])),
    )


@pytest.mark.slow
@given(stored(), st.none() | PAIRS, st.sampled_from([init, add, end]), st.booleans())
def test_every_answer_is_a_legal_step_from_where_it_was(
    current: TransactionMetadata,
    pair: tuple[int, int] | None,
    kind: Callable[..., Any],
    committed: bool,
) -> None:
    pid, epoch = pair or current.producer
    if kind is init:
        request: Request[object] = init(pair)
    elif kind is add:
        request = add(REFUNDS, pid=pid, epoch=epoch)
    else:
        request = end(committed=committed, pid=pid, epoch=epoch)
    try:
        result = request(current)
    except ApiError:
        return
    after = getattr(result, "metadata", None) or getattr(result, "prepared", result)
    if after is not None:
        assert isinstance(after, TransactionMetadata)
        assert after.state in STORED
        assert STEPS[current.state, after.state]


@given(stored(), st.booleans())
def test_an_end_is_idempotent_and_never_turns_into_its_opposite(
    current: TransactionMetadata, committed: bool
) -> None:
    mine = end(committed=committed, epoch=current.producer_epoch)
    other = end(committed=not committed, epoch=current.producer_epoch)
    try:
        prepared = mine(current)
    except ApiError:
        return
    if prepared is None:
        done = current
    else:
        assert answer(mine, prepared) == WAIT
        assert answer(other, prepared) == WRONG_STATE
        done = ending.complete(prepared, NOW_MS)
    assert mine(done) is None
    assert answer(other, done) == WRONG_STATE


class Coordinator(RuleBasedStateMachine):
    """One transactional id under clients that repeat, overtake and outlive each other.

    An *intent* is one wish for a pair: a new instance's, or the wish to follow up on a pair, which
    stays the same wish however often and by whomever it is sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.current: Current = None
        self.next_producer_id = FRESH
        self.instances = 0
        self.intent_of: dict[tuple[int, int], object] = {}
        self.epochs: dict[int, int] = {}
        self.replaced_by_a_fence: dict[tuple[int, int], tuple[int, int]] = {}
        """By a fencing epoch: the pair whose holder alone may be given it."""

    @initialize(epoch=st.sampled_from([0, 32763, 32766]))
    def given_an_id_of_some_age(self, epoch: int) -> None:
        self.current = metadata(EMPTY, producer_epoch=epoch, last_producer_epoch=-1)
        self.intent_of[7, epoch] = "before the test"

    def fresh(self) -> int | None:
        if not decisions.needs_new_producer_id(self.current):
            return None
        self.next_producer_id += 1
        return self.next_producer_id

    def become(self, after: TransactionMetadata) -> None:
        if self.current is not None:
            assert STEPS[self.current.state, after.state]
            if after.producer_id != self.current.producer_id:
                assert self.current.producer_epoch >= 32766
        self.current = after

    def init(self, intent: object, expected: tuple[int, int] | None) -> None:
        before = self.current
        try:
            verdict = init(expected, self.fresh(), self.now_ms)(before)
        except (ProducerFencedError, ConcurrentTransactionsError):
            return
        if isinstance(verdict, FenceOngoing):
            assert before is not None
            assert expected in (None, before.producer)
            self.replaced_by_a_fence[verdict.prepared.producer] = before.producer
            self.become(verdict.prepared)
            return
        pair = given_pair(verdict)
        assert pair[1] <= 32766
        if pair in self.replaced_by_a_fence:
            assert intent == ("after", self.replaced_by_a_fence[pair])
        assert self.intent_of.setdefault(pair, intent) == intent
        self.become(verdict.metadata)

    @rule()
    def a_new_instance_starts(self) -> None:
        self.instances += 1
        self.init(("instance", self.instances), None)

    @rule(data=st.data())
    def somebody_follows_up_on_a_pair(self, data: st.DataObject) -> None:
        newest = list(self.intent_of)[-4:]
        pair = data.draw(st.sampled_from(newest) | PAIRS)
        self.init(("after", pair), pair)

    @rule(data=st.data(), tp=st.sampled_from([ORDERS, REFUNDS]))
    def somebody_adds(self, data: st.DataObject, tp: TopicPartition) -> None:
        pid, epoch = data.draw(st.sampled_from(list(self.intent_of)[-3:]))
        try:
            after = add(tp, pid=pid, epoch=epoch, now_ms=self.now_ms)(self.current)
        except ApiError:
            return
        if after is not None:
            self.become(after)
        assert self.current is not None
        decisions.verify(self.current, pid, epoch, partition=tp)

    @rule(data=st.data(), committed=st.booleans())
    def somebody_ends(self, data: st.DataObject, committed: bool) -> None:
        pid, epoch = data.draw(st.sampled_from(list(self.intent_of)[-3:]))
        try:
            after = end(committed=committed, pid=pid, epoch=epoch, now_ms=self.now_ms)(self.current)
        except ApiError:
            return
        if after is not None:
            self.become(after)

    @precondition(
        lambda self: self.current and self.current.state in (PREPARE_COMMIT, PREPARE_ABORT)
    )
    @rule()
    def the_markers_are_written(self) -> None:
        assert self.current is not None
        self.become(ending.complete(self.current, self.now_ms))

    @rule(ms=st.sampled_from([1, TIMEOUT_MS + 1, 2_001, EXPIRATION_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        if self.current is None:
            return
        if decisions.is_timed_out(self.current, self.now_ms):
            fenced = decisions.abort_timed_out(self.current, self.now_ms)
            self.replaced_by_a_fence[fenced.producer] = self.current.producer
            self.become(fenced)
        elif self.current.state.may_expire and self.rested_ms() >= EXPIRATION_MS:
            self.current = None

    def rested_ms(self) -> int:
        assert self.current is not None
        return self.now_ms - self.current.last_update_time_ms

    @invariant()
    def the_epoch_of_a_producer_id_never_falls(self) -> None:
        if self.current is not None:
            pid, epoch = self.current.producer
            assert epoch >= self.epochs.get(pid, 0)
            self.epochs[pid] = epoch

    @invariant()
    def only_the_newest_pair_is_let_in(self) -> None:
        if self.current is None or self.current.state in (PREPARE_COMMIT, PREPARE_ABORT):
            return
        for pid, epoch in list(self.intent_of)[-4:]:
            let_in = answer(add(ORDERS, pid=pid, epoch=epoch), self.current) not in (
                FENCED,
                UNMAPPED,
            )
            assert let_in == ((pid, epoch) == self.current.producer)

    @invariant()
    def a_transaction_at_rest_holds_nothing(self) -> None:
        if self.current is not None and self.current.state not in HALF_WAY:
            assert not self.current.partitions
            assert not self.current.groups


Coordinator.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestCoordinator = Coordinator.TestCase
