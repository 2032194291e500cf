"""The consumer's filter: what is left of fetched records (Kafka: CompletedFetch)."""

from __future__ import annotations

from eosdb import AbortedTransaction, LogRecord
from eosdb.client.filter import visible


def data(offset: int, producer_id: int = 7, *, transactional: bool = True) -> LogRecord:
    return LogRecord(
        offset, 0, 0, None, b"%d" % offset, (), producer_id, 0, offset, transactional, None
    )


def marker(offset: int, control: str, producer_id: int = 7) -> LogRecord:
    return LogRecord(offset, 0, 0, None, None, (), producer_id, 0, -1, True, control)


def kept(records: list[LogRecord], *aborted: tuple[int, int]) -> list[int]:
    transactions = [AbortedTransaction(pid, first, 99, 100) for pid, first in aborted]
    return [record.offset for record in visible(records, transactions)]


def test_markers_are_never_handed_out() -> None:
    assert kept([data(0), marker(1, "COMMIT"), data(2), marker(3, "ABORT")]) == [0, 2]


def test_aborted_data_is_left_out_up_to_its_marker() -> None:
    assert kept([data(0), data(1), marker(2, "ABORT"), data(3)], (7, 0)) == [3]


def test_other_producers_between_are_not_touched() -> None:
    assert kept([data(0), data(1, 8), data(2), marker(3, "ABORT")], (7, 0)) == [1]


def test_a_producers_data_before_the_aborted_transaction_stays() -> None:
    assert kept([data(0), marker(1, "COMMIT"), data(2), marker(3, "ABORT")], (7, 2)) == [0]


def test_records_outside_of_transactions_are_never_filtered() -> None:
    assert kept([data(0), data(1, transactional=False)], (7, 0)) == [1]


def test_an_aborted_transaction_that_began_before_the_fetch_is_known_at_once() -> None:
    assert kept([data(5), marker(6, "ABORT"), data(7)], (7, 0)) == [7]


def test_an_abort_marker_of_a_producer_that_is_not_filtered_is_harmless() -> None:
    assert kept([marker(0, "ABORT"), data(1)], (8, 5)) == [1]


def test_two_aborted_transactions_of_one_producer() -> None:
    records = [
        data(0),
        marker(1, "ABORT"),
        data(2),
        marker(3, "COMMIT"),
        data(4),
        marker(5, "ABORT"),
    ]
    assert kept(records, (7, 0), (7, 4)) == [2]
