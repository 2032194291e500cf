"""`apply`, which folds an event into all materialized tables, and the projections of the coordinator's
tables.

The live path and replay both call `apply`, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eosdb.coordinator import users
from eosdb.coordinator.authorizer import ACLS, AclMemo
from eosdb.coordinator.groups import configs as group_configs
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.producer_ids import BLOCK_VERSION, NEXT_PRODUCER_ID
from eosdb.events import kinds
from eosdb.log import projection as log_projection
from eosdb.model.values import (
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_PER_TRANSACTION,
    GroupState,
)
from eosdb.store.counters import set_counter
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Folding

_PRODUCER_IDS: Final = Table("producer_ids", "producer_id transactional_id", "producer_id")


def producer_id_block_allocated(
    unit: Folding, event: kinds.ProducerIdBlockAllocated, position: int
) -> None:
    set_counter(unit, NEXT_PRODUCER_ID, event.first_producer_id + event.size)
    set_counter(unit, BLOCK_VERSION, event.version)


def life_began(unit: Folding, event: kinds.LifeBegan, position: int) -> None:
    set_counter(unit, NEXT_PRODUCER_ID, event.first_producer_id)


def coordinator_elected(unit: Folding, event: kinds.CoordinatorElected, position: int) -> None:
    set_counter(unit, transaction_rows.COORDINATOR_EPOCH, event.epoch)


def transaction_state_changed(
    unit: Folding, event: kinds.TransactionStateChanged, position: int
) -> None:
    state = event.to_state
    before = transaction_rows.load(unit, event.transactional_id)
    transaction_rows.save(unit, before, event)
    ended_with = event.producer_id
    if state.is_complete and event.transaction_version == EPOCH_PER_TRANSACTION:
        ended_with = event.previous_producer_id
    if state is EMPTY or ended_with != event.producer_id:
        unit.execute(_PRODUCER_IDS.ignore, (event.producer_id, event.transactional_id))
    if state.is_complete and before is not None and before.groups:
        group_offsets.complete_pending(unit, ended_with, committed=state is COMPLETE_COMMIT)


def producer_ids_forgotten(unit: Folding, event: kinds.ProducerIdsForgotten, position: int) -> None:
    unit.executemany(_PRODUCER_IDS.delete, [(id_,) for id_ in event.producer_ids])


def offsets_deleted(unit: Folding, event: kinds.OffsetsDeleted, position: int) -> None:
    group_offsets.forget(unit, event)
    if event.reason in ("group deleted", "group expired"):
        group_rows.forget(unit, event.group_id)


def group_changed(unit: Folding, event: kinds.GroupChanged, position: int) -> None:
    group_rows.save(unit, event)
    is_empty = event.state == GroupState.EMPTY.value
    group_offsets.retain(unit, event.group_id, event.timestamp if is_empty else None)


def acl_added(unit: Folding, event: kinds.AclAdded, position: int) -> None:
    unit.execute(ACLS.ignore, event.acl)
    unit.memos[AclMemo].rules = None


def acl_removed(unit: Folding, event: kinds.AclRemoved, position: int) -> None:
    unit.execute(ACLS.delete, event.acl)
    unit.memos[AclMemo].rules = None


HANDLERS: Final[dict[type[kinds.Event], Callable[[Folding, Any, int], None]]] = {
    kinds.ProducerIdBlockAllocated: producer_id_block_allocated,
    kinds.LifeBegan: life_began,
    kinds.CoordinatorElected: coordinator_elected,
    kinds.TransactionStateChanged: transaction_state_changed,
    kinds.TransactionalIdExpired: transaction_rows.expired,
    kinds.ProducerIdsForgotten: producer_ids_forgotten,
    kinds.OffsetsCommitted: group_offsets.committed,
    kinds.TxnOffsetsCommitted: group_offsets.txn_committed,
    kinds.OffsetsDeleted: offsets_deleted,
    kinds.TopicDeleted: group_offsets.topic_deleted,
    kinds.AclAdded: acl_added,
    kinds.AclRemoved: acl_removed,
    kinds.ScramCredentialSet: users.credential_set,
    kinds.ScramCredentialRemoved: users.credential_removed,
    kinds.GroupChanged: group_changed,
    kinds.GroupConfigAltered: group_configs.altered,
}
_FOLDS: Final = {
    kind: tuple(
        handlers[kind] for handlers in (HANDLERS, log_projection.HANDLERS) if kind in handlers
    )
    for kind in kinds.KINDS.values()
}
if missing := [kind.__name__ for kind, handlers in _FOLDS.items() if not handlers]:
    raise AssertionError(f"no projection folds {', '.join(missing)}")


def apply(unit: Folding, event: kinds.Event, position: int) -> None:
    """Fold the event at `position` in the journal."""
    for handler in _FOLDS[type(event)]:
        handler(unit, event, position)
