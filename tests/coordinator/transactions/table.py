"""Every request in every state of a transactional id, and stories of several requests: Kafka's tables,
and what docs/semantics.md adds. The decisions are held to it, and so is who serves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions.state import TransactionMetadata
from eosdb.model.values import TransactionState
from tests.coordinator.transactions.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    FENCED,
    FRESH,
    NEEDED,
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
    Current,
    Request,
    Served,
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

RETRY = "NOT_ENOUGH_REPLICAS"
NEW = "Empty 100/0"

# The last version of an end that the id has seen: after version 2, the pair before is that of a repeat.
ALL: tuple[TransactionState | None, ...] = (
    None, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD,
    PREPARE_EPOCH_FENCE,
)  # fmt: skip
STORED = ALL[1:7]

NOBODY = (UNMAPPED,) + 8 * (FENCED,)
STRANGER = 9 * (UNMAPPED,)
ABORTED = "PrepareAbort 7/6"

Cells = tuple[str | None, ...]
MATRIX: dict[str, tuple[Request[object], Cells]] = {
    "init by a new instance": (
        init(),
        (NEW, "Empty 7/6", "PrepareAbort 7/6", WAIT, WAIT, "Empty 7/6", "Empty 7/6", "bug", "bug"),
    ),
    "init with the current pair": (
        init((7, 5)),
        (NEW, "Empty 7/6", "PrepareAbort 7/6", WAIT, WAIT, "Empty 7/6", "Empty 7/6", "bug", "bug"),
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
    "add a group with an older epoch": (add(groups=("audit",), epoch=4), NOBODY),
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
        Request(lambda current: decisions.complete(current, NOW_MS)),
        (None, "bug", "bug", "CompleteCommit 7/5", "CompleteAbort 7/5", "bug", "bug", "bug", "bug"),
    ),
    "timed out, after the deadline": (
        Request(lambda current: decisions.is_timed_out(current, START_MS + TIMEOUT_MS + 1)),
        (None, "no", "yes", "no", "no", "no", "no", "no", "no"),
    ),
    "timed out, at the deadline": (
        Request(lambda current: decisions.is_timed_out(current, START_MS + TIMEOUT_MS)),
        (None,) + 8 * ("no",),
    ),
    "fence": (
        time_out(), (None, "bug", "PrepareAbort 7/6", "bug", "bug", "bug", "bug", "bug", "bug"),
    ),
    "needs a new producer id": (
        init(fresh=None),
        (NEEDED, "Empty 7/6", "PrepareAbort 7/6", WAIT, WAIT, "Empty 7/6", "Empty 7/6", "bug", "bug"),
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
    "verify a group with an older epoch": (verify(group="billing", epoch=4), (UNMAPPED,) + 8 * (STALE,)),
    "verify with another producer id": (verify(ORDERS, pid=8, epoch=4), STRANGER),
    "verify a group with another producer id": (verify(group="billing", pid=8), STRANGER),
}  # fmt: skip
ENDED_BY_VERSION_2: dict[str, tuple[Request[object], Cells]] = {
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
    "commit repeated by an old client": (end(committed=True, epoch=4, version=1), 6 * (FENCED,)),
    "commit from two transactions ago": (end(committed=True, epoch=3, version=2), 6 * (FENCED,)),
    "abort from two transactions ago": (end(committed=False, epoch=3, version=2), 6 * (FENCED,)),
    "commit of another producer id": (end(committed=True, pid=8, version=2), 6 * (UNMAPPED,)),
}
ENDED_BY_VERSION_1: dict[str, tuple[Request[object], Cells]] = {
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


@dataclass(frozen=True, slots=True)
class Row:
    """A request that meets an id in a state, and what it comes to: an error, or the state after it."""

    name: str
    request: Request[object]
    current: Current
    answer: str


def _rows(
    matrix: dict[str, tuple[Request[object], Cells]],
    columns: tuple[TransactionState | None, ...],
    version: int,
) -> list[Row]:
    """`version` is that of the end behind a state after one."""

    def current(state: TransactionState | None) -> Current:
        at_work = state in (None, EMPTY, ONGOING)
        return state and metadata(state, transaction_version=1 if at_work else version)

    return [
        Row(
            f"v{version} {name} - {state.label if state else 'unknown id'}",
            request, current(state), cell,
        )
        for name, (request, cells) in matrix.items()
        for state, cell in zip(columns, cells, strict=True)
        if cell is not None
    ]  # fmt: skip


def _at(epoch: int, state: TransactionState = EMPTY) -> TransactionMetadata:
    return metadata(state, producer_epoch=epoch)


def _ended(committed: bool) -> list[Row]:
    """The end, under each version, of a transaction that a fence has aborted meanwhile: by a time-out, or a
    new instance. As Kafka 4.4.0 answers EndTxn versions 5 and 4."""
    fence = {"producer_epoch": 6, "last_producer_epoch": 5}
    answers = {2: (WRONG_STATE, WRONG_STATE) if committed else (WAIT, "fine"), 1: (FENCED, FENCED)}
    return [
        Row(
            f"v{version} {'commit' if committed else 'abort'} behind a fence - {state.label}",
            end(committed=committed, version=version), metadata(state, **fence), told,
        )
        for version, both in answers.items()
        for state, told in zip((PREPARE_ABORT, COMPLETE_ABORT), both, strict=True)
    ]  # fmt: skip


_ROTATED = {"producer_id": FRESH, "producer_epoch": 0, "previous_producer_id": 7}
AT_THE_LAST_EPOCH = [
    Row("a repeat is answered alike", init((7, 32765)), exhausted(), "Empty 7/32766"),
    Row("older than the last epoch", init((7, 32764)), exhausted(), FENCED),
    Row("the fencing epoch", init((7, 32767)), exhausted(), FENCED),
    Row("another id at the last epoch", init((8, 32766)), exhausted(), FENCED),
    Row("the last epoch is still given out", init(fresh=None), _at(32765), "Empty 7/32766"),
    *(
        Row(f"after the last - {state.label}, {pair}", init(pair), exhausted(state), NEW)
        for state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
        for pair in (None, (7, 32766))
    ),
    *(
        Row(f"a new id for {epoch} - {state.label}", init(fresh=None), _at(epoch, state), told)
        for epoch, state, told in (
            (32766, EMPTY, NEEDED), (32766, COMPLETE_COMMIT, NEEDED), (32766, COMPLETE_ABORT, NEEDED),
            (32767, COMPLETE_ABORT, NEEDED), (32766, ONGOING, "PrepareAbort 7/32767"),
            (32766, PREPARE_COMMIT, WAIT),
        )
    ),
    Row("fenced at the last epoch, and another expected", init((7, 32765)),
        metadata(COMPLETE_ABORT, producer_epoch=32767, last_producer_epoch=32766), FENCED),
    Row("an end that uses up the epochs",
        end(committed=True, epoch=32766, version=2, fresh=None), exhausted(ONGOING), NEEDED),
    Row("an end of version 1 uses up no epoch",
        end(committed=True, epoch=32766, version=1, fresh=None), exhausted(ONGOING),
        "PrepareCommit 7/32766"),
    Row("nothing is left to fence with", init(), _at(32767, ONGOING), "bug"),
    *(
        Row(f"the old id while the new one is at work - {state.label}, {epoch}", init((7, epoch)),
            metadata(state, last_producer_epoch=32766, **_ROTATED), told)
        for state, epoch, told in (
            (ONGOING, 32766, FENCED), (PREPARE_COMMIT, 32766, WAIT), (PREPARE_COMMIT, 32765, FENCED),
        )
    ),
]  # fmt: skip
ROWS: tuple[Row, ...] = (
    *_rows(MATRIX, ALL, 1),
    *_rows(ENDED_BY_VERSION_2, STORED, 2),
    *_rows(ENDED_BY_VERSION_1, STORED, 1),
    *_ended(committed=True), *_ended(committed=False),
    *AT_THE_LAST_EPOCH,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Story:
    """Requests one after the other, each with its answer; what is decided is complete before the next."""

    name: str
    start: Current
    steps: tuple[tuple[Request[object], str], ...]


def _turns(version: int, *epochs: int) -> tuple[tuple[Request[object], str], ...]:
    """A transaction for each epoch, committed and aborted by turns."""
    return tuple(
        step
        for epoch in epochs
        for step in (
            (add(ORDERS, groups=("billing",), epoch=epoch), f"Ongoing 7/{epoch}"),
            (
                end(committed=epoch % 2 == 0, epoch=epoch, version=version),
                f"Prepare{'Abort' if epoch % 2 else 'Commit'} 7/{epoch + (version == 2)}",
            ),
        )
    )


_FENCED_ORDERS = (add(ORDERS), FENCED)
STORIES: tuple[Story, ...] = (
    Story("a repeated bump may be repeated again", metadata(EMPTY), 3 * ((init((7, 5)), "Empty 7/6"),)),
    Story(
        "so may one of an id that was never bumped before",
        metadata(EMPTY, previous_producer_id=-1), 3 * ((init((7, 5)), "Empty 7/6"),),
    ),
    Story(
        "a take-over ends the repeats", metadata(EMPTY),
        (
            (init((7, 5)), "Empty 7/6"), (init(), "Empty 7/7"),
            (init((7, 5)), FENCED), (init((7, 6)), FENCED),
        ),
    ),
    Story(
        "taking over an open transaction costs two epochs, and its holder is too late", metadata(ONGOING),
        (
            (init(), "PrepareAbort 7/6"), (init(), "Empty 7/7"),
            (init((7, 5)), FENCED), (init((7, 6)), FENCED),
        ),
    ),
    Story(  # KAFKA-19367: "call again" leads somewhere, until somebody else has called.
        "who held the fenced transaction is given the fencing epoch", metadata(ONGOING),
        (
            (init((7, 5)), "PrepareAbort 7/6"), *3 * ((init((7, 5)), "Empty 7/6"),),
            (init((7, 4)), FENCED), (init(), "Empty 7/7"), (init((7, 5)), FENCED),
        ),
    ),
    Story(  # Kafka answers the repeat with PRODUCER_FENCED.
        "who was fenced at the last epoch goes on under a new id", exhausted(ONGOING),
        (
            (init(), "PrepareAbort 7/32767"), *2 * ((init((7, 32766)), NEW),),
            (init((7, 32765)), FENCED),
        ),
    ),
    Story(
        "the fence may use the epoch that no client gets", exhausted(ONGOING),
        ((init(), "PrepareAbort 7/32767"), (init(), f"Empty {FRESH}/1"), (init(), f"Empty {FRESH}/2")),
    ),
    Story(
        "a lost answer with the new id is given again once", exhausted(),
        (
            (init((7, 32766)), NEW), (init((7, 32765)), FENCED), (init((7, 32767)), FENCED),
            (init((FRESH, 32766)), FENCED), (init((8, 32766)), FENCED), (init((7, 32766)), NEW),
            (init((7, 32766)), FENCED), (init((FRESH, 32766)), FENCED),
            (init((FRESH, 0)), f"Empty {FRESH}/1"),
        ),
    ),
    Story(
        "after a take-over the old id's last epoch is no repeat", exhausted(),
        ((init(), NEW), (init((7, 32766)), FENCED)),
    ),
    Story(
        "a time-out fences its producer, who may take the id again", metadata(ONGOING),
        (
            (time_out(), "PrepareAbort 7/6"), _FENCED_ORDERS, (end(committed=True), FENCED),
            (verify(ORDERS), STALE), *2 * ((init((7, 5)), "Empty 7/6"),), (init(), "Empty 7/7"),
        ),
    ),
    Story(
        "after a time-out a commit is refused, and an abort has what it wants", metadata(ONGOING),
        (
            (time_out(), "PrepareAbort 7/6"), (end(committed=True, version=2), WRONG_STATE),
            (end(committed=False, version=2), "fine"), (add(ORDERS, epoch=6), "Ongoing 7/6"),
        ),
    ),
    *(
        Story(
            f"an end is too late once the fenced id is taken by {pair or 'anybody'}", metadata(ONGOING),
            (
                (time_out(), "PrepareAbort 7/6"), (init(pair), f"Empty 7/{6 if pair else 7}"),
                *((end(committed=committed, version=version), FENCED)
                  for committed in (True, False) for version in (1, 2)),
            ),
        )
        for pair in (None, (7, 5))
    ),
    Story(  # Kafka 4.4.0 answers the abort with a new id.
        "an abort that a fence at the last epoch forestalled is given no epoch", exhausted(ONGOING),
        (
            (time_out(), "PrepareAbort 7/32767"),
            *((end(committed=committed, epoch=32_766, version=2), FENCED) for committed in (True, False)),
        ),
    ),
    Story("a transaction of version 2 has an epoch of its own", metadata(EMPTY), _turns(2, *range(5, 11))),
    Story("those of version 1 keep theirs", metadata(EMPTY), _turns(1, 5, 5, 5)),
    Story(
        "who lost the answer to an end may ask with init", metadata(EMPTY),
        (*_turns(2, 5), (init((7, 5)), "Empty 7/6"), (init((7, 6)), "Empty 7/7")),
    ),
    Story(
        "a late end never reaches the next transaction", metadata(EMPTY),
        (
            *_turns(2, 5), (add(ORDERS, epoch=6), "Ongoing 7/6"),
            *((end(committed=committed, version=2), FENCED) for committed in (True, False)),
        ),
    ),
    Story(
        "an abort without a transaction still takes the epoch away", metadata(EMPTY),
        (
            (end(committed=False, version=2), ABORTED), _FENCED_ORDERS, (verify(ORDERS), STALE),
            (end(committed=True, epoch=6, version=2), WRONG_STATE),
        ),
    ),
    Story(
        "the end at the last epoch leads to a new producer id", _at(32_765),
        (
            (add(ORDERS, epoch=32_765), "Ongoing 7/32765"),
            (end(committed=True, epoch=32_765, version=2), "PrepareCommit 7/32766"),
            (add(ORDERS, epoch=32_766), "Ongoing 7/32766"),
            # The markers carry an epoch that no client ever has.
            (end(committed=True, epoch=32_766, version=2), "PrepareCommit 7/32767"),
            (end(committed=True, epoch=32_766, version=2), "fine"),
            (end(committed=False, epoch=32_766, version=2), WRONG_STATE),
            (end(committed=True, epoch=32_765, version=2), UNMAPPED),
            (init((7, 32_766)), NEW),
        ),
    ),
)  # fmt: skip


REFUSALS = (FENCED, STALE, UNMAPPED, WRONG_STATE, WAIT, RETRY)


def play(story: Story, step: Callable[[Request[object], str, str], None] | None = None) -> None:
    """Decides each step; `step` is given the request, its answer, and the id as it is afterwards."""
    current = story.start
    for number, (request, told) in enumerate(story.steps):
        assert answer(request, current) == told, f"step {number}"
        found = None if told in REFUSALS else left_by(request(current))
        if found is not None:
            current = decisions.complete(found, NOW_MS) if found.state.is_decided else found
        if step is not None:
            assert current is not None
            step(
                request,
                told,
                f"{current.state.label} {current.producer_id}/{current.producer_epoch}",
            )


def serve(story: Story, served: Served) -> None:
    """Has who serves the id answer each step as the decision does, and leave the id like it."""

    def step(request: Request[object], told: str, after: str) -> None:
        if request.name == "init" and told.startswith("PrepareAbort"):
            told = WAIT  # The abort is done, and the client is to call again.
        answered = (request.ask(served), served.shown())
        assert answered == (told if told in REFUSALS else "fine", after), story.name

    assert story.start is not None
    served.begin_in(story.start)
    play(story, step)


AT_REST_OR_OPEN = tuple(
    Story(row.name, row.current, ((row.request, row.answer),))
    for row in ROWS
    if row.request.name not in ("", "time_out") and row.current and row.answer not in ("bug", NEW)
    if row.current.state in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)
    if row.current.producer_epoch == 5
)
"""The rows that can be asked of who serves a file: there no id waits for its markers."""
