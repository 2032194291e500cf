"""Transactions for operators (kafka-transactions.sh): find hanging ones, diagnose blocked partitions, end a
transaction, fence a producer, describe a transactional id's events in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from eosdb import errors
from eosdb.admin import diagnosis
from eosdb.admin.hanging import DUE
from eosdb.broker.core import Core
from eosdb.coordinator.authorizer import CLUSTER
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.log import append, partition_rows, producer_rows, transaction_index
from eosdb.model import validation
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import HangingReason, JournalEntry, OpenTransaction
from eosdb.model.values import ProducerIdAndEpoch, TopicPartition, TransactionState
from eosdb.store.journal import last_position, of_transactional_id, page
from eosdb.store.writing.unit import Unit

_TRANSITIONS: Final = """
SELECT position, from_state, to_state, producer_id, producer_epoch, partitions
FROM transaction_history WHERE transactional_id = ?
"""
Query = Callable[[str, tuple[object, ...]], Iterable[Any]]


@reads("journal")
def told(
    query: Query, transactional_id: str, entries: Iterable[JournalEntry]
) -> list[tuple[JournalEntry, str]]:
    """Pair each event of the transactional id with a sentence that describes it."""
    transitions = dict(_transitions(query(_TRANSITIONS, (transactional_id,))))
    return [(entry, _sentence(entry, transitions)) for entry in entries]


def _transitions(rows: Iterable[Any]) -> Iterator[tuple[int, str]]:
    for position, from_state, to_state, producer_id, producer_epoch, partitions in rows:
        tps = ", ".join(f"{tp['topic']}/{tp['partition']}" for tp in parsed(partitions))
        yield (
            position,
            f"{from_state or 'new'} -> {to_state}, producer {producer_id} epoch {producer_epoch}"
            + (f", {tps}" if tps else ""),
        )


def _sentence(entry: JournalEntry, transitions: dict[int, str]) -> str:
    detail = parsed(entry.detail)
    where = f"{entry.topic}/{entry.partition}"
    match entry.kind:
        case "TransactionStateChanged":
            groups = f", groups {', '.join(detail['groups'])}" if detail["groups"] else ""
            return transitions.get(entry.position, entry.detail) + groups
        case "BatchAppended":
            first = detail["base_offset"]
            return f"{where} offsets {first} to {first + detail['count'] - 1}"
        case "MarkerWritten":
            return f"{where} offset {detail['offset']} {detail['control']}"
        case "TxnOffsetsCommitted":
            offsets = (f"{o['topic']}/{o['partition']} at {o['offset']}" for o in detail["offsets"])
            return f"group {detail['group_id']}: {', '.join(offsets)}"
    return entry.detail


_FENCE_TRIES: Final = 10
_NEW_TIMEOUT_MS: Final = 60_000


class _EndedError(Exception):
    """The transaction has ended already. `abort_transaction` always catches it."""

    def __init__(self, outcome: str) -> None:
        self.outcome: Final = outcome


def open_transactions(
    core: Core, topic_partition: TopicPartition | None = None
) -> list[OpenTransaction]:
    """Return the transactions open in the partition, or in all, with the coordinator's state of them."""
    tp = None if topic_partition is None else validation.check_topic_partition(topic_partition)
    with core.store.read() as connection:
        partition = None if tp is None else partition_rows.read(connection, tp)
        foresight = core.coordinator.foresight(connection)
        return diagnosis.read_open(core, connection, foresight, partition)


def find_hanging_transactions(core: Core, min_age_ms: int = 0) -> list[OpenTransaction]:
    """Return the open transactions that nothing will end soon, and why (kafka-transactions.sh
    find-hanging).

    With `min_age_ms`, only those whose last record is at least this old.
    """
    validation.check_int("min_age_ms", min_age_ms, 0)
    before = core.clock.time_ms() - min_age_ms
    return [
        transaction
        for transaction in open_transactions(core)
        if transaction.hanging is not None and transaction.last_timestamp <= before
    ]


def fence_producer(core: Core, transactional_id: str) -> ProducerIdAndEpoch:
    """Fence the producer of the transactional id and abort its open transaction (KIP-588). Returns
    the new producer id and epoch.

    An unused id is created, as by `init_producer_id`, which this calls.
    """
    timeout_ms = _timeout_of(core, transactional_id)
    may_end = partial(
        core.authorizer.check, operation="alter", resource_type="cluster", name=CLUSTER
    )
    for attempt in range(_FENCE_TRIES):
        try:
            return core.coordinator.init_producer_id(transactional_id, timeout_ms, None, may_end)
        except errors.ConcurrentTransactionsError:
            continue  # The abort of the open transaction is not finished; try again.
        except errors.EosdbError as error:
            if attempt:
                errors.in_doubt(error)
            raise
    raise errors.in_doubt(
        errors.ConcurrentTransactionsError(
            f"transactional id {transactional_id!r}: other processes keep it busy; its producer may be "
            "fenced, try again"
        )
    )


def abort_transaction(core: Core, topic_partition: TopicPartition, start_offset: int) -> str:
    """End the transaction that began in the partition at this offset, hanging or not. Returns `COMMIT` or
    `ABORT`.

    If the coordinator has decided to commit it, it is committed, because it may already be visible in other
    partitions. A live transaction is aborted, and its producer fenced. Raises InvalidRequestError if no
    open transaction begins there, and UnknownTopicIdError if the topic is deleted meanwhile.
    """
    tp = validation.check_topic_partition(topic_partition)
    validation.check_int("start_offset", start_offset, 0)
    partition_id, transaction = _beginning_at(core, tp, start_offset)
    is_held = transaction.hanging is None or transaction.hanging in DUE
    if transaction.transactional_id is not None and is_held:
        assert transaction.state is not None
        state = TransactionState.from_label(transaction.state)
        if state.is_decided:
            core.coordinator.leadership.recover()
            return _outcome(state)
        return _abort_open(core, transaction.transactional_id, partition_id, transaction)
    return core.coordinator.write(lambda unit: _end_hanging(core, unit, partition_id, transaction))


def transaction_history(core: Core, transactional_id: str) -> list[JournalEntry]:
    """Return the events of the transactional id in the journal, oldest first. Raises
    TransactionalIdNotFoundError if there are none."""
    validation.check_transactional_id(transactional_id)
    with core.reading("describe", "transactional_id", transactional_id) as connection:
        entries = list(of_transactional_id(connection, transactional_id))
    if not entries:
        raise errors.TransactionalIdNotFoundError(
            f"there are no events of the transactional id {transactional_id!r}, as far as the "
            "journal goes back"
        )
    return entries


def journal(
    core: Core,
    after: int = 0,
    *,
    kinds: tuple[str, ...] = (),
    topic: str | None = None,
    transactional_id: str | None = None,
) -> Iterator[JournalEntry]:
    """Yield the events after a position that match every filter, oldest first, read on demand. Events
    older than the history remain only if one of their records is stored."""
    validation.check_int("after", after, 0)
    validation.check_texts("kinds", kinds)
    for name, value in (("topic", topic), ("transactional_id", transactional_id)):
        if value is not None:
            validation.check_text(name, value)
    while True:
        with core.reading("describe", "cluster", CLUSTER) as connection:
            entries, position = page(connection, after, kinds, topic, transactional_id)
        yield from entries
        if position == after:
            return
        after = position


def journal_position(core: Core, newest: int = 0) -> int:
    with core.store.read() as connection:
        return max(last_position(connection) - newest, 0)


def _beginning_at(core: Core, tp: TopicPartition, start_offset: int) -> tuple[int, OpenTransaction]:
    """The open transaction that begins there, and the id of the partition."""
    with core.store.read() as connection:
        partition = partition_rows.read(connection, tp)
        foresight = core.coordinator.foresight(connection)
        opened = diagnosis.read_open(core, connection, foresight, partition)
    for transaction in opened:
        if transaction.start_offset == start_offset:
            return partition.partition_id, transaction
    begins = ", ".join(str(transaction.start_offset) for transaction in opened)
    raise errors.InvalidRequestError(
        f"{tp}: no open transaction begins at offset {start_offset}; "
        + (f"those that are open begin at {begins}" if begins else "none is open there")
    )


def _abort_open(
    core: Core, transactional_id: str, partition_id: int, transaction: OpenTransaction
) -> str:
    """Fence the producer and abort exactly this transaction, never a later one of the same id."""

    def may_end(unit: Unit) -> None:
        core.authorizer.check(unit, "alter", "cluster", CLUSTER)
        if (outcome := _ended(core, unit, partition_id, transaction)) is not None:
            raise _EndedError(outcome)

    timeout_ms = _timeout_of(core, transactional_id)
    try:
        core.coordinator.init_producer_id(transactional_id, timeout_ms, None, may_end)
    except _EndedError as ended:
        return ended.outcome
    except errors.ConcurrentTransactionsError:  # This error means: the transaction was aborted.
        pass
    return "ABORT"


def _ended(core: Core, unit: Unit, partition_id: int, transaction: OpenTransaction) -> str | None:
    """The outcome if the transaction has ended meanwhile, also by this write's due work; None if it
    is open. Raises UnknownTopicIdError."""
    partition = partition_rows.find_by_id(unit, partition_id)
    if partition is None:
        raise errors.UnknownTopicIdError(
            f"{transaction.topic_partition}: the topic was deleted meanwhile, perhaps "
            "recreated; nothing was changed"
        )
    entry = producer_rows.load(unit, partition_id, transaction.producer_id)
    start = transaction.start_offset
    if entry is not None and entry.current_txn_first_offset == start:
        return None
    end = partition.log_end_offset
    aborted = transaction_index.collect(unit.connection, partition, start, end)
    places = {(one.producer_id, one.first_offset) for one in aborted}
    return "ABORT" if (transaction.producer_id, start) in places else "COMMIT"


def _end_hanging(core: Core, unit: Unit, partition_id: int, transaction: OpenTransaction) -> str:
    core.authorizer.check(unit, "alter", "cluster", CLUSTER)
    if (outcome := _ended(core, unit, partition_id, transaction)) is not None:
        return outcome
    partition = partition_rows.by_id(unit, partition_id)
    entry = producer_rows.load(unit, partition_id, transaction.producer_id)
    assert entry is not None
    if transaction.hanging is HangingReason.REFUSED:
        assert transaction.transactional_id is not None
        return _end_as_decided(core, unit, transaction.transactional_id)
    append.append_marker(
        unit,
        partition,
        ProducerIdAndEpoch(entry.producer_id, entry.producer_epoch),
        max(entry.coordinator_epoch, transaction_rows.epoch(unit)),
        committed=False,
        transactional_id=transaction.transactional_id,
        now_ms=core.clock.time_ms(),
    )
    return "ABORT"


def _end_as_decided(core: Core, unit: Unit, transactional_id: str) -> str:
    """Write the markers under a coordinator epoch newer than any that the transaction's partitions
    have seen."""
    decided = transaction_rows.load(unit, transactional_id)
    assert decided is not None
    seen = []
    for tp in decided.partitions:
        if partition_rows.exists(unit, tp):
            partition_id = partition_rows.load(unit, tp).partition_id
            entry = producer_rows.load(unit, partition_id, decided.producer_id)
            seen.append(-1 if entry is None else entry.coordinator_epoch)
    now = core.clock.time_ms()
    epoch = transaction_rows.elect(unit, now, above=max(seen, default=0))
    transaction_rows.write_markers_and_complete(unit, decided, epoch, now)
    return _outcome(decided.state)


def _timeout_of(core: Core, transactional_id: str) -> int:
    """Return the id's timeout, which its producer set. A new id has a default until then."""
    validation.check_transactional_id(transactional_id)
    with core.store.read() as connection:
        metadata = transaction_rows.TRANSACTIONAL_IDS.find(connection, transactional_id)
    timeout_ms = _NEW_TIMEOUT_MS if metadata is None else metadata.timeout_ms
    return min(timeout_ms, core.config.transaction_max_timeout_ms)


def _outcome(decided: TransactionState) -> str:
    return "COMMIT" if decided is TransactionState.PREPARE_COMMIT else "ABORT"
