"""Deliberate bugs, one at a time, to prove that the simulation would find them.

Each is a patch of one decision or one effect, the kind of mistake that a rewrite could make. `FOUND_BY`
in `found_by.py` says which seed found it; `hunt.py` searches for those seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from eosdb.client import fetcher, membership, progress, settling
from eosdb.client.answers import is_lost
from eosdb.coordinator import (
    coordinator,
    group_offsets,
    group_requests,
    office,
    producer_ids,
    transaction,
    transaction_end,
    transactions,
)
from eosdb.coordinator.transaction import Initialized
from eosdb.coordinator.transaction_state import TransactionMetadata
from eosdb.errors import (
    EosdbError,
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    UnknownMemberIdError,
)
from eosdb.events import TxnOffsetsCommitted
from eosdb.log import append, fetch, producer_state, producers, retention, transaction_index
from eosdb.log.partitions import Partition
from eosdb.log.producer_state import Accept, Duplicate
from eosdb.model import ConsumerGroupMetadata, ProduceResult, TransactionState

Patch = Callable[[], contextlib.AbstractContextManager[object]]
MUTANTS: dict[str, tuple[str, Patch]] = {}
"""By name: what is wrong, and the patch that makes it so."""


def mutant(what: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        MUTANTS[function.__name__] = (what, function)
        return function

    return register


def replaced(owner: object, name: str, make: Callable[[Any], Any]) -> Any:
    """Patch an attribute with what `make` makes of the original."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


# -- the partition's decisions -------------------------------------------------------------------


@mutant("a partition stores a batch of an older epoch")
def partition_skips_the_epoch_check() -> Any:
    def make(judge: Any) -> Any:
        def judged(entry: Any, incoming: Any, *rest: Any) -> Any:
            try:
                return judge(entry, incoming, *rest)
            except InvalidProducerEpochError:
                return Accept(incoming.base_sequence)

        return judged

    return replaced(append, "judge", make)


@mutant("a partition stores a batch although sequences before it are missing")
def accept_a_gap() -> Any:
    def make(judge: Any) -> Any:
        def judged(entry: Any, incoming: Any, *rest: Any) -> Any:
            try:
                return judge(entry, incoming, *rest)
            except OutOfOrderSequenceNumberError:
                return Accept(incoming.base_sequence)

        return judged

    return _both(
        replaced(append, "judge", make),
        replaced(
            append,
            "settle",
            lambda settle: (
                lambda pid, incoming, question, stored: (
                    stored.batch
                    if stored.batch is not None and stored.batch_count == incoming.count
                    else Accept(question.base_serial)
                )
            ),
        ),
    )


@mutant("a repeated batch is stored again under the next sequences")
def answer_a_duplicate_as_new() -> Any:
    def make(judge: Any) -> Any:
        def judged(entry: Any, incoming: Any, *rest: Any) -> Any:
            verdict = judge(entry, incoming, *rest)
            return Accept(entry.last_serial + 1) if isinstance(verdict, Duplicate) else verdict

        return judged

    return replaced(append, "judge", make)


@mutant("a repeated batch is answered with the offset after the original")
def wrong_offset_for_a_duplicate() -> Any:
    def make(judge: Any) -> Any:
        def judged(entry: Any, incoming: Any, *rest: Any) -> Any:
            verdict = judge(entry, incoming, *rest)
            if isinstance(verdict, Duplicate):
                return Duplicate(verdict.base_offset + 1, verdict.last_offset + 1)
            return verdict

        return judged

    return replaced(append, "judge", make)


@mutant("a transactional batch is stored without asking the coordinator")
def no_verification() -> Any:
    return mock.patch.object(append, "has_open_transaction", return_value=True)


@mutant("deleting records forgets what their producers have sent")
def delete_records_forgets_producers() -> Any:
    def make(delete: Any) -> Any:
        def deleted(unit: Any, partition: Partition, *rest: Any) -> Any:
            result = delete(unit, partition, *rest)
            for entry in producers.entries(unit, partition.partition_id):
                producers.forget(unit, partition.partition_id, entry.producer_id)
            return result

        return deleted

    return replaced(retention, "delete_records", make)


# -- markers, the LSO and the index --------------------------------------------------------------


@mutant("one partition of a transaction gets no marker")
def forget_one_marker() -> Any:
    def make(write: Any) -> Any:
        def written(unit: Any, partition: Any, *rest: Any, **options: Any) -> None:
            if partition.topic != "data" or partition.partition != 2:
                write(unit, partition, *rest, **options)

        return written

    return replaced(append, "append_marker", make)


@mutant("an abort writes COMMIT markers")
def abort_writes_commit_markers() -> Any:
    def make(write: Any) -> Any:
        return lambda *rest, committed, **options: write(*rest, committed=True, **options)

    return replaced(append, "append_marker", make)


@mutant("one partition of a committed transaction gets an ABORT marker")
def torn_markers() -> Any:
    def make(write: Any) -> Any:
        def written(unit: Any, partition: Any, *rest: Any, committed: bool, **options: Any) -> None:
            write(
                unit, partition, *rest, committed=committed and partition.partition != 1, **options
            )

        return written

    return replaced(append, "append_marker", make)


@mutant("the last stable offset does not wait for open transactions")
def advance_the_lso_early() -> Any:
    def stability(self: Partition, first_unstable: int, log_end: int) -> tuple[int, int]:
        return first_unstable, log_end

    return mock.patch.object(Partition, "stability", stability)


@mutant("a marker clears the other producers' open transactions from the LSO")
def lso_forgets_other_transactions() -> Any:
    return mock.patch.object(producers, "first_open_offset", return_value=-1)


@mutant("the transaction index begins one record too late")
def index_misses_the_first_record() -> Any:
    def make(add: Any) -> Any:
        def added(unit: Any, partition_id: int, entry: Any) -> None:
            add(unit, partition_id, entry._replace(first_offset=entry.first_offset + 1))

        return added

    return replaced(transaction_index, "add", make)


@mutant("the search of the transaction index stops one entry too early")
def index_search_stops_early() -> Any:
    def search(entries: Any, fetch_offset: int, upper_bound: int) -> Iterator[Any]:
        for entry in entries:
            if entry.last_stable_offset >= upper_bound:
                return
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                yield entry

    return mock.patch.object(transaction_index, "search", search)


@mutant("a read_committed fetch goes on to the log end")
def fetch_ignores_the_lso() -> Any:
    return mock.patch.object(
        fetch, "upper_bound", lambda partition, *, read_committed: partition.log_end_offset
    )


@mutant("the consumer goes on filtering a producer after its ABORT marker")
def consumer_filters_too_long() -> Any:
    def visible(rows: Any, aborted: Any) -> list[Any]:
        gone = {entry.producer_id for entry in aborted}
        return [row for row in rows if row[6] not in gone]

    return mock.patch.object(fetcher, "visible", visible)


# -- the coordinator's decisions -----------------------------------------------------------------


@mutant("the coordinator does not look at the epoch")
def coordinator_skips_the_epoch_check() -> Any:
    def held_by(current: Any, producer_id: int, epoch: int, stale: Any) -> Any:
        if current is None or current.producer_id != producer_id:
            return original(current, producer_id, epoch, stale)
        return current

    original = transaction.held_by
    return _both(
        mock.patch.object(transaction, "held_by", held_by),
        mock.patch.object(transaction_end, "held_by", held_by),
    )


@mutant("the end of a transaction does not raise the epoch")
def end_keeps_the_epoch() -> Any:
    def make(end: Any) -> Any:
        return lambda *rest, version, **options: end(*rest, version=1, **options)

    return replaced(coordinator.transaction_end, "end", make)


@mutant("a new instance gets the epoch of the old one")
def init_keeps_the_epoch() -> Any:
    def make(init: Any) -> Any:
        def decided(current: Any, *rest: Any) -> Any:
            verdict = init(current, *rest)
            if current is not None and isinstance(verdict, Initialized):
                metadata = verdict.metadata._replace(
                    producer_id=current.producer_id,
                    producer_epoch=current.producer_epoch,
                )
                return Initialized(metadata)
            return verdict

        return decided

    return replaced(coordinator.transaction, "init_producer_id", make)


@mutant("a new instance does not abort the transaction that the old one left open")
def init_leaves_the_transaction_open() -> Any:
    def make(init: Any) -> Any:
        def decided(current: Any, tid: str, timeout: int, *rest: Any) -> Any:
            verdict = init(current, tid, timeout, *rest)
            if isinstance(verdict, Initialized):
                return verdict
            return Initialized(
                verdict.prepared._replace(
                    state=TransactionState.EMPTY,
                    partitions=frozenset(),
                    groups=frozenset(),
                    start_time_ms=-1,
                )
            )

        return decided

    return replaced(coordinator.transaction, "init_producer_id", make)


@mutant("a time-out aborts without fencing the producer")
def timeout_does_not_fence() -> Any:
    def abort(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
        return current._replace(state=TransactionState.PREPARE_ABORT, last_update_time_ms=now_ms)

    return mock.patch.object(coordinator.transaction, "abort_timed_out", abort)


@mutant("transactions never time out")
def nothing_times_out() -> Any:
    return _both(
        mock.patch.object(transactions, "first_timed_out", return_value=None),
        mock.patch.object(transactions, "NEXT_TIMEOUT", "SELECT 1 WHERE 0"),
    )


@mutant("whoever takes over aborts what was decided to commit")
def takeover_aborts_decided_commits() -> Any:
    def make(load: Any) -> Any:
        def loaded(unit: Any, transactional_id: str) -> Any:
            found = load(unit, transactional_id)
            if found is not None and found.state is TransactionState.PREPARE_COMMIT:
                found = found._replace(state=TransactionState.PREPARE_ABORT)
                unit.memo["transaction", transactional_id] = found
            return found

        return loaded

    def make_elect(elect: Any) -> Any:
        def elected(self: Any, unit: Any) -> int:
            with replaced(transactions, "load", make):
                return int(elect(self, unit))

        return elected

    return replaced(office.Office, "_elect_and_complete", make_elect)


@mutant("a commit is answered before its markers are written")
def answer_before_the_markers() -> Any:
    return mock.patch.object(office.Office, "complete", return_value=None)


@mutant("producer ids are handed out again after a restart")
def producer_ids_twice() -> Any:
    def make(next_block: Any) -> Any:
        def block(state: Any, size: int, now_ms: int) -> Any:
            return dataclasses.replace(next_block(state, size, now_ms), first_producer_id=0)

        return block

    return replaced(producer_ids, "next_block", make)


# -- offsets in transactions ---------------------------------------------------------------------


@mutant("an abort commits the pending offsets")
def abort_keeps_pending_offsets() -> Any:
    def make(settle: Any) -> Any:
        return lambda unit, pid, *, committed: settle(unit, pid, committed=True)

    return replaced(group_offsets, "settle_pending", make)


@mutant("pending offsets are dropped one transaction too late")
def drop_pending_offsets_late() -> Any:
    def make(settle: Any) -> Any:
        def settled(unit: Any, pid: int, *, committed: bool) -> None:
            if committed:
                settle(unit, pid, committed=True)

        return settled

    return replaced(group_offsets, "settle_pending", make)


@mutant("offsets count as soon as they are sent to the transaction")
def offsets_before_the_commit() -> Any:
    def pend(
        unit: Any, pid: int, epoch: int, group: str, offsets: Any, timestamp: int, position: int
    ) -> None:
        group_offsets.put(unit, group, offsets, timestamp, position)

    return mock.patch.object(group_offsets, "pend", pend)


@mutant("a fenced producer may still send offsets")
def zombies_may_send_offsets() -> Any:
    def make(join: Any) -> Any:
        def joined(unit: Any, tid: str, producer: Any, *rest: Any, **options: Any) -> None:
            try:
                join(unit, tid, producer, *rest, **options)
            except InvalidProducerEpochError:
                if not options.get("groups"):
                    raise

        return joined

    return replaced(transactions, "join", make)


@mutant("a rebuild forgets the offsets of open transactions")
def rebuild_forgets_pending_offsets() -> Any:
    from eosdb import projection
    from eosdb.store import replay

    def make(rebuild: Any) -> Any:
        def rebuilt(unit: Any, *rest: Any) -> int:
            handlers = {**projection._HANDLERS, TxnOffsetsCommitted: ()}
            with mock.patch.object(projection, "_HANDLERS", handlers):
                return int(rebuild(unit, *rest))

        return rebuilt

    return replaced(replay, "rebuild", make)


# -- the client ----------------------------------------------------------------------------------


@mutant("the client repeats a batch under a new sequence")
def client_repeats_under_a_new_sequence() -> Any:
    def make(repeat: Any) -> Any:
        def repeated(self: Any, batch: Any, error: EosdbError, now_ms: int) -> None:
            if is_lost(error) and batch.identity is not None:
                own = self._manager.progress(batch.tp)
                own.drop(batch)
                own.acknowledged = own.next_serial
                batch.identity, batch.serial = None, -1
            repeat(self, batch, error, now_ms)

        return repeated

    return replaced(settling.Settling, "_repeat", make)


@mutant("the client takes a lost answer for a success")
def client_takes_silence_for_success() -> Any:
    def make(repeat: Any) -> Any:
        def repeated(self: Any, batch: Any, error: EosdbError, now_ms: int) -> None:
            if is_lost(error):
                self._stored(batch, ProduceResult(), now_ms)
            else:
                repeat(self, batch, error, now_ms)

        return repeated

    return replaced(settling.Settling, "_repeat", make)


@mutant("the client sends several batches before the first of a pipeline is answered")
def client_opens_the_window_at_once() -> Any:
    def make(admits: Any) -> Any:
        def admitted(
            self: Any, identity: Any, max_in_flight: int, now_ms: int, **options: Any
        ) -> bool:
            self._known_ms = now_ms
            return bool(admits(self, identity, max_in_flight, now_ms, **options))

        return admitted

    return replaced(progress.PartitionProgress, "admits_new", make)


# -- groups --------------------------------------------------------------------------------------


@mutant("a group takes the offsets of somebody whose session has ended")
def group_takes_offsets_of_strangers() -> Any:
    def make(check: Any) -> Any:
        def checked(*arguments: Any, **options: Any) -> None:
            with contextlib.suppress(UnknownMemberIdError):
                check(*arguments, **options)

        return checked

    return replaced(group_requests, "check_commit", make)


@mutant("a consumer tells the transaction its group, but not who it is")
def consumer_commits_as_nobody() -> Any:
    def nobody(self: Any) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._held.group_id)

    return mock.patch.object(membership.Membership, "metadata", property(nobody))


@mutant("the leader gives a partition to two members")
def leader_gives_twice() -> Any:
    def make(assign: Any) -> Any:
        def assigned(self: Any, joined: Any) -> dict[str, bytes]:
            shares = assign(self, joined)
            largest = max(shares.values(), key=len)
            return dict.fromkeys(shares, largest)

        return assigned

    return replaced(membership.Membership, "_assign", make)


def _both(*patches: Any) -> Any:
    @contextlib.contextmanager
    def together() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield

    return together()


assert producer_state.judge is append.judge
