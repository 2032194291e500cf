"""Deliberate bugs in the coordinator: transactions, offsets, groups."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

from eosdb.broker import group_offsets as offset_requests
from eosdb.client.consumer.membership import Membership
from eosdb.coordinator import due_work, projection
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.errors import (
    IllegalGenerationError,
    InvalidProducerEpochError,
    UnknownMemberIdError,
)
from eosdb.events.kinds import TxnOffsetsCommitted
from eosdb.model.values import ConsumerGroupMetadata
from eosdb.store.schema.newest import Statement
from tests.simulation.planting import both, instead_of, mutant, replaced

# -- the coordinator's decisions ---------------------------------------------------------------------


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


# -- offsets in transactions -------------------------------------------------------------------------


@instead_of(
    "pending offsets are dropped one transaction too late", group_offsets, "complete_pending"
)
def drop_pending_offsets_late(complete: Any, unit: Any, pid: int, *, committed: bool) -> None:
    if committed:
        complete(unit, pid, committed=True)


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
