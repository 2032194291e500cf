"""The decisions about a transactional id, held to the table: answers, stories, and whole values.

Goal: a take-over, a lost answer, the last epoch, a timeout leave exactly the fields behind that the next
request depends on. Method: each row and story of `table`; then what steps write, field by field.
"""

from __future__ import annotations

import pytest

from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.errors import (
    ApiError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from eosdb.model.values import ProducerIdAndEpoch, TransactionState
from tests.cases import each
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FRESH,
    NOW_MS,
    ONGOING,
    ORDERS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    REFUNDS,
    START_MS,
    TIMEOUT_MS,
    Current,
    Request,
    add,
    answer,
    end,
    exhausted,
    init,
    left_by,
    metadata,
    time_out,
    verify,
)
from tests.coordinator.transactions.table import ALL, ROWS, STORIES, Story, play

AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


def test_the_table_has_every_state() -> None:
    assert set(ALL) == {None, *TransactionState}


def test_request_in_state() -> None:
    """One test for the table: a case of pytest's costs more than a row."""
    found = {row.name: answer(row.request, row.current) for row in ROWS}
    assert found == {row.name: row.answer for row in ROWS}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_requests_one_after_the_other(story: Story) -> None:
    play(story)


# -- what is written --------------------------------------------------------------------------------

UNKNOWN_AT_FIRST = TransactionMetadata(
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
NOW = {"last_update_time_ms": NOW_MS}
BEGUN_ANEW = {"timeout_ms": 2_000, **NOW}
FENCED_ONCE = {"producer_epoch": 6, "last_producer_epoch": 5, "previous_producer_id": 7}
NEXT_ID = {"producer_id": FRESH, "producer_epoch": 0, "previous_producer_id": 7, **BEGUN_ANEW}
EFFECTS: dict[str, tuple[Request[object], Current, TransactionMetadata]] = {
    "an unknown id starts with a new producer at epoch 0": (init(), None, UNKNOWN_AT_FIRST),
    "whatever pair is expected": (init((3, 9)), None, UNKNOWN_AT_FIRST),
    **{
        f"{state.label}: {what}": (
            init(pair), metadata(state),
            metadata(EMPTY, producer_epoch=epoch, last_producer_epoch=last, **BEGUN_ANEW),
        )
        for state in AT_REST
        for what, pair, epoch, last in (
            ("a new instance forgets the replaced epoch", None, 6, -1),
            ("the holder's own bump remembers it", (7, 5), 6, 5),
            ("a repeat changes neither", (7, 4), 5, 4),
        )
    },
    **{
        f"{state.label}: after the last epoch {pair} gets a new id": (
            init(pair), exhausted(state), metadata(EMPTY, last_producer_epoch=last, **NEXT_ID),
        )
        for state in AT_REST
        for pair, last in ((None, -1), ((7, 32766), 32766))
    },
    **{
        f"fencing by {pair} is an abort under the next epoch": (
            init(pair), metadata(ONGOING), metadata(PREPARE_ABORT, **FENCED_ONCE, **NOW),
        )
        for pair in (None, (7, 5))
    },
    "so is a time-out": (
        time_out(), metadata(ONGOING),
        metadata(PREPARE_ABORT, last_update_time_ms=START_MS + TIMEOUT_MS + 1, **FENCED_ONCE),
    ),
    **{
        f"{state.label}: the first addition starts the transaction": (
            add(REFUNDS, groups=("audit",)), metadata(state),
            metadata(
                ONGOING, partitions=frozenset({REFUNDS}), groups=frozenset({"audit"}),
                start_time_ms=NOW_MS, **NOW,
            ),
        )
        for state in AT_REST
    },
    "later additions join and do not move the start": (
        add(REFUNDS, ORDERS, groups=("audit",)), metadata(ONGOING),
        metadata(
            ONGOING, partitions=frozenset({ORDERS, REFUNDS}),
            groups=frozenset({"audit", "billing"}), **NOW,
        ),
    ),
    "a partition that is in it does not hide a group": (
        add(ORDERS, groups=("audit",)), metadata(ONGOING),
        metadata(ONGOING, groups=frozenset({"audit", "billing"}), **NOW),
    ),
    "nor a group a partition": (
        add(REFUNDS, groups=("billing",)), metadata(ONGOING),
        metadata(ONGOING, partitions=frozenset({ORDERS, REFUNDS}), **NOW),
    ),
    "adding nothing starts an empty transaction, as in Kafka": (
        add(), metadata(EMPTY), metadata(ONGOING, partitions=frozenset(), groups=frozenset(),
                                         start_time_ms=NOW_MS, **NOW),
    ),
    "a commit takes the whole transaction along": (
        end(committed=True), metadata(ONGOING), metadata(PREPARE_COMMIT, **NOW),
    ),
    "an abort, too": (end(committed=False), metadata(ONGOING), metadata(PREPARE_ABORT, **NOW)),
    **{
        f"{done.label} keeps its start and nothing else": (
            Request(lambda current: decisions.complete(current, NOW_MS)), metadata(prepared),
            metadata(done, start_time_ms=START_MS, **NOW),
        )
        for prepared, done in ((PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT))
    },
    "a clock that went back is tolerated": (
        end(committed=True, now_ms=5), metadata(ONGOING),
        metadata(PREPARE_COMMIT, last_update_time_ms=5),
    ),
}  # fmt: skip


@each("effect", EFFECTS)
def test_every_field_that_a_step_writes(effect: str) -> None:
    request, current, after = EFFECTS[effect]
    assert left_by(request(current)) == after


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
    for state in (*AT_REST, PREPARE_COMMIT, PREPARE_ABORT):
        assert prolong(5, state) is None


# -- what a request must say -------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [1, 900_000, -1, 0, 900_001])
def test_a_timeout_is_within_the_limit(timeout_ms: int) -> None:
    if 0 < timeout_ms <= 900_000:
        decisions.check_timeout(timeout_ms, 900_000)
        return
    with pytest.raises(InvalidTransactionTimeoutError, match=rf"got {timeout_ms} .* 900000"):
        decisions.check_timeout(timeout_ms, 900_000)


def test_an_expectation_is_a_whole_pair_or_none() -> None:
    assert decisions.expected_or_none(-1, -1) is None
    assert decisions.expected_or_none(0, 0) == ProducerIdAndEpoch(0, 0)
    for pid, epoch in ((7, -1), (-1, 5)):
        with pytest.raises(InvalidRequestError, match=rf"{pid} .* {epoch}"):
            decisions.expected_or_none(pid, epoch)


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
    request_: Request[object], state: TransactionState, error: type[ApiError], words: str
) -> None:
    with pytest.raises(error, match=words):
        request_(metadata(state))
