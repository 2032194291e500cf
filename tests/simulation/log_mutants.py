"""Deliberate bugs in the partition: what is appended, cleaned, read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from eosdb.broker import transactions
from eosdb.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from eosdb.log import (
    append,
    compaction,
    producer_rows,
    producer_state,
    retention,
    transaction_index,
)
from eosdb.log.partition_rows import Partition
from eosdb.log.producer_state import Accept, Duplicate
from eosdb.log.reading import block
from tests.simulation.planting import both, instead_of, mutant, replaced

# -- the partition's decisions -----------------------------------------------------------------------


@instead_of("a partition stores a batch of an older epoch", append, "judge")
def partition_skips_the_epoch_check(judge: Any, entry: Any, incoming: Any, *rest: Any) -> Any:
    try:
        return judge(entry, incoming, *rest)
    except InvalidProducerEpochError:
        return Accept(incoming.base_sequence)


@mutant("a partition stores a batch although sequences before it are missing")
def accept_a_gap() -> Any:
    def make(judge: Any) -> Any:
        def judged(entry: Any, incoming: Any, *rest: Any) -> Any:
            try:
                return judge(entry, incoming, *rest)
            except OutOfOrderSequenceNumberError:
                return Accept(incoming.base_sequence)

        return judged

    return both(
        replaced(append, "judge", make),
        replaced(
            append,
            "judge_by_rows",
            lambda judge_by_rows: (
                lambda pid, incoming, question, stored: (
                    stored.batch
                    if stored.batch is not None and stored.batch_count == incoming.count
                    else Accept(question.base_serial)
                )
            ),
        ),
    )


@instead_of("a repeated batch is stored again under the next sequences", append, "judge")
def answer_a_duplicate_as_new(judge: Any, entry: Any, incoming: Any, *rest: Any) -> Any:
    verdict = judge(entry, incoming, *rest)
    return Accept(entry.last_serial + 1) if isinstance(verdict, Duplicate) else verdict


@instead_of("a repeated batch is answered with the offset after the original", append, "judge")
def wrong_offset_for_a_duplicate(judge: Any, entry: Any, incoming: Any, *rest: Any) -> Any:
    verdict = judge(entry, incoming, *rest)
    if isinstance(verdict, Duplicate):
        return Duplicate(verdict.base_offset + 1, verdict.last_offset + 1)
    return verdict


@mutant("a transactional batch is stored without asking the coordinator")
def no_verification() -> Any:
    return mock.patch.object(append, "has_open_transaction", return_value=True)


@instead_of("deleting records forgets what their producers have sent", retention, "delete_records")
def delete_records_forgets_producers(
    delete: Any, unit: Any, partition: Partition, *rest: Any
) -> Any:
    result = delete(unit, partition, *rest)
    for entry in producer_rows.entries(unit, partition.partition_id):
        producer_rows.forget(unit, partition.partition_id, entry.producer_id)
    return result


@mutant("aborted data supersedes in a compaction")
def aborted_data_supersedes() -> Any:
    newest = compaction._NEWEST.replace(" AND NOT aborted", "")
    assert newest != compaction._NEWEST
    return mock.patch.object(compaction, "_NEWEST", newest)


# -- markers, the LSO and the index ------------------------------------------------------------------


@instead_of("one partition of a transaction gets no marker", append, "append_marker")
def forget_one_marker(write: Any, unit: Any, partition: Any, *rest: Any, **options: Any) -> None:
    if partition.topic != "data" or partition.partition != 2:
        write(unit, partition, *rest, **options)


@instead_of("an abort writes COMMIT markers", append, "append_marker")
def abort_writes_commit_markers(write: Any, *rest: Any, committed: Any, **options: Any) -> Any:
    return write(*rest, committed=True, **options)


@instead_of(
    "one partition of a committed transaction gets an ABORT marker", append, "append_marker"
)
def torn_markers(
    write: Any, unit: Any, partition: Any, *rest: Any, committed: bool, **options: Any
) -> None:
    write(unit, partition, *rest, committed=committed and partition.partition != 1, **options)


@mutant("the last stable offset does not wait for open transactions")
def advance_the_lso_early() -> Any:
    def stability(self: Partition, first_unstable: int, log_end: int) -> tuple[int, int]:
        return first_unstable, log_end

    return mock.patch.object(Partition, "stability", stability)


@mutant("a marker clears the other producers' open transactions from the LSO")
def lso_forgets_other_transactions() -> Any:
    return mock.patch.object(producer_rows, "first_open_offset", return_value=-1)


@mutant("the last stable offset stays behind when the log start passes it")
def lso_below_the_log_start() -> Any:
    def stability(self: Partition, first_unstable: int, log_end: int) -> tuple[int, int]:
        return first_unstable, log_end if first_unstable < 0 else first_unstable

    return mock.patch.object(Partition, "stability", stability)


@mutant("a coordinator that has been replaced may still write markers")
def markers_of_old_coordinators() -> Any:
    def make(check: Any) -> Any:
        def checked(*arguments: Any) -> None:
            with contextlib.suppress(TransactionCoordinatorFencedError):
                check(*arguments)

        return checked

    return both(
        replaced(append, "check_marker", make), replaced(transactions, "check_marker", make)
    )


@instead_of("the transaction index begins one record too late", transaction_index, "add")
def index_misses_the_first_record(
    add: Any, unit: Any, partition_id: int, entry: Any, previous: int
) -> None:
    later = entry._replace(first_offset=entry.first_offset + 1)
    add(unit, partition_id, later, previous)


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
        block, "upper_bound", lambda partition, *, read_committed: partition.log_end_offset
    )


@mutant("the consumer goes on filtering a producer after its ABORT marker")
def consumer_filters_too_long() -> Any:
    def taken_back_in(connection: Any, partition: Any, start: int, end: int, seen: Any) -> set[int]:
        gone = {
            entry.producer_id
            for entry in transaction_index.collect(connection, partition, start, end)
        }
        rows = connection.execute(
            transaction_index._PRODUCERS, (partition.partition_id, start, end)
        )
        return {offset for producer_id, offset, _ in rows if producer_id in gone}

    return mock.patch.object(transaction_index, "taken_back_in", taken_back_in)


assert producer_state.judge is append.judge  # type: ignore[attr-defined]
