"""Deliberate bugs in the coordinator: transactions, offsets, groups."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

from eosdb.broker import group_offsets as offset_requests
from eosdb.client.consumer.membership import Membership
from eosdb.coordinator import due_work, leadership, projection
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.transactions import decisions, producer_ids, state
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.errors import (
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    UnknownMemberIdError,
)
from eosdb.events.kinds import TxnOffsetsCommitted
from eosdb.model.values import ConsumerGroupMetadata, TransactionState
from eosdb.store.schema.newest import Statement
from tests.simulation.planting import both, instead_of, mutant, replaced

# -- the coordinator's decisions ---------------------------------------------------------------------


@mutant("the coordinator does not look at the epoch")
def coordinator_skips_the_epoch_check() -> Any:
    def held_by(current: Any, producer_id: int, epoch: int, stale: Any) -> Any:
        if current is None or current.producer_id != producer_id:
            return original(current, producer_id, epoch, stale)
        return current

    original = state.held_by
    return mock.patch.object(decisions, "held_by", held_by)


@instead_of("the end of a transaction does not raise the epoch", decisions, "end")
def end_keeps_the_epoch(end: Any, *rest: Any, version: Any, **options: Any) -> Any:
    return end(*rest, version=1, **options)


@instead_of("a new instance gets the epoch of the old one", decisions, "init_producer_id")
def init_keeps_the_epoch(init: Any, current: Any, *rest: Any) -> Any:
    after = init(current, *rest)
    if current is not None and after.state is TransactionState.EMPTY:
        return after._replace(
            producer_id=current.producer_id, producer_epoch=current.producer_epoch
        )
    return after


@instead_of(
    "a new instance does not abort the transaction that the old one left open",
    decisions,
    "init_producer_id",
)
def init_leaves_the_transaction_open(
    init: Any, current: Any, tid: str, timeout: int, *rest: Any
) -> Any:
    return init(current, tid, timeout, *rest)._replace(
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        groups=frozenset(),
        start_time_ms=-1,
    )


@instead_of("a producer is fenced with its own epoch", decisions, "fence")
def fence_keeps_the_epoch(fence: Any, current: Any, now_ms: Any) -> Any:
    return fence(current, now_ms)._replace(producer_epoch=current.producer_epoch)


@instead_of("a repeated end is answered with success, whatever it asks for", decisions, "end")
def any_end_repeats_the_last(
    end: Any, current: Any, pid: int, epoch: int, *rest: Any, **options: Any
) -> Any:
    try:
        return end(current, pid, epoch, *rest, **options)
    except InvalidTxnStateError:
        if (pid, epoch) != (current.previous_producer_id, current.last_producer_epoch):
            raise
        return None


@mutant("transactions never time out")
def nothing_times_out() -> Any:
    return both(
        mock.patch.object(transaction_rows, "first_timed_out", return_value=None),
        mock.patch.object(
            due_work,
            "_NEXT",
            due_work._NEXT.replace(transaction_rows.NEXT_TIMEOUT, "SELECT 1 WHERE 0"),
        ),
    )


@mutant("whoever takes over aborts what was decided to commit")
def takeover_aborts_decided_commits() -> Any:
    def make(load: Any) -> Any:
        def loaded(unit: Any, transactional_id: str) -> Any:
            found = load(unit, transactional_id)
            if found is not None and found.state is TransactionState.PREPARE_COMMIT:
                found = found._replace(state=TransactionState.PREPARE_ABORT)
                unit.memos[transaction_rows.TransactionMemo].rows[transactional_id] = found
            return found

        return loaded

    def make_elect(elect: Any) -> Any:
        def elected(self: Any, unit: Any, *above: int) -> int:
            with replaced(transaction_rows, "load", make):
                return int(elect(self, unit, *above))

        return elected

    return replaced(leadership.Leadership, "elect_and_complete", make_elect)


@mutant("a commit is answered before its markers are written")
def answer_before_the_markers() -> Any:
    return mock.patch.object(leadership.Leadership, "complete", return_value=None)


@instead_of("producer ids are handed out again after a restart", producer_ids, "counter")
def producer_ids_twice(counter: Any, unit: Any, name: str) -> int:
    return 0 if name == producer_ids.NEXT_PRODUCER_ID else counter(unit, name)


# -- offsets in transactions -------------------------------------------------------------------------


@instead_of("an abort commits the pending offsets", group_offsets, "complete_pending")
def abort_keeps_pending_offsets(complete: Any, unit: Any, pid: Any, *, committed: Any) -> Any:
    return complete(unit, pid, committed=True)


@instead_of(
    "pending offsets are dropped one transaction too late", group_offsets, "complete_pending"
)
def drop_pending_offsets_late(complete: Any, unit: Any, pid: int, *, committed: bool) -> None:
    if committed:
        complete(unit, pid, committed=True)


@mutant("offsets count as soon as they are sent to the transaction")
def offsets_before_the_commit() -> Any:
    return mock.patch.dict(projection._FOLDS, {TxnOffsetsCommitted: (group_offsets.committed,)})


@instead_of("a fenced producer may still send offsets", transaction_rows, "join")
def zombies_may_send_offsets(
    join: Any, unit: Any, tid: str, producer: Any, *rest: Any, **options: Any
) -> None:
    try:
        join(unit, tid, producer, *rest, **options)
    except InvalidProducerEpochError:
        if not options.get("groups"):
            raise


@mutant("an older offset of a transaction replaces a newer plain one")
def older_pending_offsets_win() -> Any:
    put = group_offsets._PUT.replace(" WHERE excluded.commit_position > commit_position", "")
    assert put != group_offsets._PUT
    put = put.replace("INTO group_offsets ", "INTO {group_offsets} ")
    return mock.patch.object(group_offsets, "_PUT", Statement(put))


@mutant("a rebuild forgets the offsets of open transactions")
def rebuild_forgets_pending_offsets() -> Any:
    from eosdb.coordinator import projection
    from eosdb.maintenance import replay

    def make(rebuild: Any) -> Any:
        def rebuilt(unit: Any, *rest: Any) -> int:
            handlers = {**projection._FOLDS, TxnOffsetsCommitted: ()}
            with mock.patch.object(projection, "_FOLDS", handlers):
                return int(rebuild(unit, *rest))

        return rebuilt

    return replaced(replay, "rebuild", make)


# -- groups ------------------------------------------------------------------------------------------


@instead_of(
    "a group takes the offsets of somebody whose session has ended", offset_requests, "check_commit"
)
def group_takes_offsets_of_strangers(check: Any, *arguments: Any, **options: Any) -> None:
    with contextlib.suppress(UnknownMemberIdError):
        check(*arguments, **options)


@instead_of(
    "a transaction takes offsets of a generation that is over", offset_requests, "check_commit"
)
def transactions_take_offsets_of_old_generations(
    check: Any, *arguments: Any, is_transactional: bool, **options: Any
) -> None:
    try:
        check(*arguments, is_transactional=is_transactional, **options)
    except IllegalGenerationError:
        if not is_transactional:
            raise


@mutant("a consumer tells the transaction its group, but not who it is")
def consumer_commits_as_nobody() -> Any:
    def nobody(self: Any) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._held.group_id)

    return mock.patch.object(Membership, "metadata", property(nobody))


@instead_of("the leader gives a partition to two members", Membership, "_assign")
def leader_gives_twice(assign: Any, self: Any, joined: Any) -> dict[str, bytes]:
    shares = assign(self, joined)
    largest = max(shares.values(), key=len)
    return dict.fromkeys(shares, largest)
