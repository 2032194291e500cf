"""What each step of a transactional id changes, and the stories that take several steps.

Goal: whole values, not only states: a take-over, a lost answer, the last epoch, a timeout leave exactly the
fields behind that the next request depends on. Method: decide, compare the returned value field by field,
and hand it to the next decision.
"""

from __future__ import annotations

import pytest

from eosdb.coordinator.transactions import decisions, ending
from eosdb.coordinator.transactions.decisions import (
    FenceOngoing,
    IllegalTransitionError,
    Initialized,
    TransactionMetadata,
)
from eosdb.errors import (
    InvalidTransactionTimeoutError,
    ProducerFencedError,
)
from eosdb.model.values import TransactionState
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FENCED,
    FRESH,
    NOW_MS,
    ONGOING,
    ORDERS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    REFUNDS,
    STALE,
    START_MS,
    TIMEOUT_MS,
    WAIT,
    Current,
    add,
    answer,
    end,
    exhausted,
    given_pair,
    init,
    metadata,
    verify,
)

# -- init_producer_id --------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [None, (3, 9)], ids=["without expectation", "with any"])
def test_an_unknown_id_starts_with_a_new_producer_at_epoch_0(
    expected: tuple[int, int] | None,
) -> None:
    assert init(expected)(None) == Initialized(
        TransactionMetadata(
            transactional_id="shop",
            producer_id=FRESH,
            producer_epoch=0,
            last_producer_epoch=-1,
            previous_producer_id=-1,
            state=EMPTY,
            timeout_ms=2_000,
            start_time_ms=-1,
            last_update_time_ms=NOW_MS,
        )
    )


@pytest.mark.parametrize(
    ("expected", "epoch", "last_epoch"),
    [
        pytest.param(None, 6, -1, id="a new instance forgets the replaced epoch"),
        pytest.param((7, 5), 6, 5, id="the holder's own bump remembers it"),
        pytest.param((7, 4), 5, 4, id="a repeat changes neither"),
    ],
)
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT], ids=lambda s: s.label)
def test_init_at_rest_replaces_the_timeout_and_forgets_the_last_transaction(
    state: TransactionState, expected: tuple[int, int] | None, epoch: int, last_epoch: int
) -> None:
    assert init(expected)(metadata(state)) == Initialized(
        metadata(
            EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=2_000,
            last_update_time_ms=NOW_MS,
        )
    )


@pytest.mark.parametrize("replaced", [7, -1], ids=["bumped before", "never bumped before"])
def test_a_repeated_bump_may_be_repeated_again(replaced: int) -> None:
    current: Current = metadata(EMPTY, previous_producer_id=replaced)
    for _ in range(3):
        result = init((7, 5))(current)
        assert given_pair(result) == (7, 6)
        assert isinstance(result, Initialized)
        current = result.metadata


def test_a_take_over_ends_the_repeats() -> None:
    bumped = init((7, 5))(metadata(EMPTY))
    assert isinstance(bumped, Initialized)
    taken_over = init()(bumped.metadata)
    assert given_pair(taken_over) == (7, 7)
    assert isinstance(taken_over, Initialized)
    assert answer(init((7, 5)), taken_over.metadata) == FENCED
    assert answer(init((7, 6)), taken_over.metadata) == FENCED


@pytest.mark.parametrize("expected", [None, (7, 5)], ids=["new instance", "holder"])
def test_fencing_an_open_transaction_is_its_abort_under_the_next_epoch(
    expected: tuple[int, int] | None,
) -> None:
    assert init(expected)(metadata(ONGOING)) == FenceOngoing(
        metadata(
            PREPARE_ABORT,
            producer_epoch=6,
            last_producer_epoch=5,
            previous_producer_id=7,
            last_update_time_ms=NOW_MS,
        )
    )


def fenced_and_aborted(current: TransactionMetadata) -> TransactionMetadata:
    verdict = init(now_ms=NOW_MS + 1)(current)
    assert isinstance(verdict, FenceOngoing)
    return ending.complete(verdict.prepared, NOW_MS + 2)


def test_taking_over_an_open_transaction_costs_two_epochs() -> None:
    assert given_pair(init()(fenced_and_aborted(metadata(ONGOING)))) == (7, 7)


def test_who_held_the_fenced_transaction_is_given_the_fencing_epoch() -> None:
    """KAFKA-19367: "call again" leads somewhere, however often, until somebody else has called."""
    current = fenced_and_aborted(metadata(ONGOING))
    for _ in range(3):
        again = init((7, 5))(current)
        assert given_pair(again) == (7, 6)
        assert isinstance(again, Initialized)
        current = again.metadata
    assert answer(init((7, 4)), current) == FENCED


def test_who_held_the_fenced_transaction_is_too_late_behind_another() -> None:
    taken = init()(fenced_and_aborted(metadata(ONGOING)))
    assert given_pair(taken) == (7, 7)
    assert isinstance(taken, Initialized)
    assert answer(init((7, 5)), taken.metadata) == FENCED
    assert answer(init((7, 6)), taken.metadata) == FENCED


def test_who_was_fenced_at_the_last_epoch_goes_on_under_a_new_id() -> None:
    """Kafka 4.1.1 answers UNKNOWN_SERVER_ERROR, again and again."""
    aborted = fenced_and_aborted(exhausted(ONGOING))
    assert aborted.producer == (7, 32767)
    given = init((7, 32766))(aborted)
    assert given_pair(given) == (FRESH, 0)
    assert isinstance(given, Initialized)
    assert given_pair(init((7, 32766), fresh=None)(given.metadata)) == (FRESH, 0)
    assert answer(init((7, 32765)), aborted) == FENCED


def test_the_fence_may_use_the_epoch_that_no_client_gets() -> None:
    aborted = fenced_and_aborted(metadata(ONGOING, producer_epoch=32766))
    assert aborted.producer == (7, 32767)
    assert decisions.needs_new_producer_id(aborted)
    assert given_pair(init()(aborted)) == (FRESH, 0)


def test_nothing_is_left_to_fence_with_above_it() -> None:
    with pytest.raises(IllegalTransitionError):
        init()(metadata(ONGOING, producer_epoch=32767))


# -- the end of the epochs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "state", "needed"),
    [
        pytest.param(32765, EMPTY, False, id="one epoch left"),
        pytest.param(32766, EMPTY, True, id="Empty at the last epoch"),
        pytest.param(32766, COMPLETE_COMMIT, True, id="CompleteCommit at the last epoch"),
        pytest.param(32766, COMPLETE_ABORT, True, id="CompleteAbort at the last epoch"),
        pytest.param(32767, COMPLETE_ABORT, True, id="fenced with the epoch beyond"),
        pytest.param(32766, ONGOING, False, id="Ongoing is fenced first"),
        pytest.param(32766, PREPARE_COMMIT, False, id="an end must be waited for"),
    ],
)
def test_when_a_new_producer_id_is_needed(
    epoch: int, state: TransactionState, needed: bool
) -> None:
    assert decisions.needs_new_producer_id(metadata(state, producer_epoch=epoch)) is needed


def test_the_last_epoch_is_still_given_out() -> None:
    assert given_pair(init(fresh=None)(metadata(EMPTY, producer_epoch=32765))) == (7, 32766)


@pytest.mark.parametrize(
    ("expected", "last_epoch"),
    [
        pytest.param(None, -1, id="new instance"),
        pytest.param((7, 32766), 32766, id="holder"),
    ],
)
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT], ids=lambda s: s.label)
def test_after_the_last_epoch_comes_a_new_producer_id(
    state: TransactionState, expected: tuple[int, int] | None, last_epoch: int
) -> None:
    result = init(expected)(exhausted(state))
    assert result == Initialized(
        metadata(
            EMPTY,
            producer_id=FRESH,
            producer_epoch=0,
            previous_producer_id=7,
            last_producer_epoch=last_epoch,
            timeout_ms=2_000,
            last_update_time_ms=NOW_MS,
        )
    )


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        pytest.param((7, 32765), "Empty 7/32766", id="a repeat is answered alike"),
        pytest.param((7, 32764), FENCED, id="older"),
        pytest.param((7, 32767), FENCED, id="the fencing epoch"),
        pytest.param((8, 32766), FENCED, id="another id"),
    ],
)
def test_at_the_last_epoch_other_expectations_follow_the_normal_rule(
    expected: tuple[int, int], outcome: str
) -> None:
    assert answer(init(expected), exhausted()) == outcome


def rotated(by: tuple[int, int] | None) -> TransactionMetadata:
    result = init(by)(exhausted())
    assert isinstance(result, Initialized)
    return result.metadata


def test_a_lost_answer_with_the_new_id_is_given_again_once() -> None:
    again = init((7, 32766), fresh=None)(rotated(by=(7, 32766)))
    assert given_pair(again) == (FRESH, 0)
    assert isinstance(again, Initialized)
    assert answer(init((7, 32766)), again.metadata) == FENCED
    assert answer(init((FRESH, 32766)), again.metadata) == FENCED
    assert answer(init((FRESH, 0)), again.metadata) == f"Empty {FRESH}/1"


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        pytest.param((7, 32766), (7, 32765), id="older epoch of the old id"),
        pytest.param((7, 32766), (7, 32767), id="fencing epoch of the old id"),
        pytest.param((7, 32766), (FRESH, 32766), id="old epoch under the new id"),
        pytest.param((7, 32766), (8, 32766), id="an id that never was"),
        pytest.param(None, (7, 32766), id="the old holder after a take-over"),
    ],
)
def test_after_the_rotation_only_the_replaced_pair_is_a_repeat(
    by: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    assert answer(init(expected), rotated(by)) == FENCED


@pytest.mark.parametrize(
    ("state", "epoch", "outcome"),
    [
        pytest.param(ONGOING, 32766, FENCED, id="open: refused at once, nothing is aborted"),
        pytest.param(PREPARE_COMMIT, 32766, WAIT, id="ending: wait, it may be a repeat"),
        pytest.param(PREPARE_COMMIT, 32765, FENCED, id="ending: an older epoch is no repeat"),
    ],
)
def test_the_old_id_while_the_new_one_is_at_work(
    state: TransactionState, epoch: int, outcome: str
) -> None:
    current = metadata(
        state,
        producer_id=FRESH,
        producer_epoch=0,
        previous_producer_id=7,
        last_producer_epoch=32766,
    )
    assert answer(init((7, epoch)), current) == outcome


@pytest.mark.parametrize("current", [None, exhausted()], ids=["unknown id", "last epoch"])
def test_a_missing_fresh_id_is_a_bug_of_the_caller(current: Current) -> None:
    with pytest.raises(IllegalTransitionError):
        init(fresh=None)(current)


# -- adding, ending, completing ----------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT], ids=lambda s: s.label)
def test_the_first_addition_starts_the_transaction(state: TransactionState) -> None:
    assert add(REFUNDS, groups=("audit",))(metadata(state)) == metadata(
        ONGOING,
        partitions=frozenset({REFUNDS}),
        groups=frozenset({"audit"}),
        start_time_ms=NOW_MS,
        last_update_time_ms=NOW_MS,
    )


def test_later_additions_join_and_do_not_move_the_start() -> None:
    assert add(REFUNDS, ORDERS, groups=("audit",))(metadata(ONGOING)) == metadata(
        ONGOING,
        partitions=frozenset({ORDERS, REFUNDS}),
        groups=frozenset({"audit", "billing"}),
        last_update_time_ms=NOW_MS,
    )


def test_a_partition_that_is_in_it_does_not_hide_a_group_that_is_not() -> None:
    assert add(ORDERS, groups=("audit",))(metadata(ONGOING)) is not None
    assert add(REFUNDS, groups=("billing",))(metadata(ONGOING)) is not None
    assert add(ORDERS, groups=("billing",))(metadata(ONGOING)) is None


def test_adding_nothing_starts_an_empty_transaction_as_in_kafka() -> None:
    started = add()(metadata(EMPTY))
    assert started is not None
    assert (started.state, started.partitions) == (ONGOING, frozenset())
    assert add()(started) is None


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_the_end_takes_the_whole_transaction_along(committed: bool) -> None:
    state = PREPARE_COMMIT if committed else PREPARE_ABORT
    assert end(committed=committed)(metadata(ONGOING)) == metadata(
        state, last_update_time_ms=NOW_MS
    )


@pytest.mark.parametrize(
    ("prepared", "completed"),
    [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)],
    ids=["commit", "abort"],
)
def test_a_completed_transaction_keeps_its_start_and_nothing_else(
    prepared: TransactionState, completed: TransactionState
) -> None:
    assert ending.complete(metadata(prepared), NOW_MS) == metadata(
        completed, start_time_ms=START_MS, last_update_time_ms=NOW_MS
    )


def test_a_clock_that_went_back_is_tolerated() -> None:
    ended = end(committed=True, now_ms=5)(metadata(ONGOING))
    assert ended is not None
    assert ended.last_update_time_ms == 5
    assert ending.complete(ended, 3).last_update_time_ms == 3


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_deadline", "timed_out"),
    [(-1, False), (0, False), (1, True)],
    ids=["before", "at", "after"],
)
def test_a_transaction_times_out_after_its_deadline(after_deadline: int, timed_out: bool) -> None:
    now_ms = START_MS + TIMEOUT_MS + after_deadline
    assert decisions.is_timed_out(metadata(ONGOING), now_ms) is timed_out
    assert (answer(lambda c: decisions.abort_timed_out(c, now_ms), metadata(ONGOING)) != "bug") is (
        timed_out
    )


@pytest.mark.parametrize(
    ("passed_ms", "timeout_ms"),
    [(499, None), (500, 1_500), (1_000, 2_000), (5_000_000_000, 2**31 - 1), (-9_000, None)],
)
def test_an_open_transaction_is_prolonged_once_half_of_its_time_has_passed(
    passed_ms: int, timeout_ms: int | None
) -> None:
    now_ms = START_MS + passed_ms
    longer = decisions.prolong(metadata(ONGOING), 7, 5, TIMEOUT_MS, now_ms)
    if timeout_ms is None:
        assert longer is None
        return
    assert longer == metadata(ONGOING, timeout_ms=timeout_ms, last_update_time_ms=now_ms)
    assert decisions.prolong(longer, 7, 5, TIMEOUT_MS, now_ms) is None, "not twice"


def test_only_its_own_producer_prolongs_a_transaction_and_only_an_open_one() -> None:
    def prolong(epoch: int, state: TransactionState = ONGOING) -> TransactionMetadata | None:
        return decisions.prolong(metadata(state), 7, epoch, TIMEOUT_MS, NOW_MS)

    with pytest.raises(ProducerFencedError):
        prolong(4)
    for state in (EMPTY, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT):
        assert prolong(5, state) is None


def test_the_timeout_fences_whoever_held_the_transaction_open() -> None:
    aborted = ending.complete(decisions.abort_timed_out(metadata(ONGOING), NOW_MS), NOW_MS)
    assert aborted == metadata(
        COMPLETE_ABORT,
        producer_epoch=6,
        last_producer_epoch=5,
        previous_producer_id=7,
        last_update_time_ms=NOW_MS,
    )
    assert answer(add(ORDERS), aborted) == FENCED
    assert answer(end(committed=True), aborted) == FENCED
    assert answer(verify(ORDERS), aborted) == STALE
    assert answer(init((7, 5)), aborted) == "Empty 7/6"
    assert answer(init(), aborted) == "Empty 7/7"


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_timeouts_within_the_limit(timeout_ms: int) -> None:
    decisions.check_timeout(timeout_ms, 900_000)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_timeouts_outside_the_limit(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeoutError, match=rf"got {timeout_ms} .* 900000"):
        decisions.check_timeout(timeout_ms, 900_000)
