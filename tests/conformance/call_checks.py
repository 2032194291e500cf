"""Calls out of order and settings that contradict the promise: what the client must refuse."""

from __future__ import annotations

from tests.conformance.check import Subject
from tests.conformance.double import (
    BAD_SETTING,
    ILLEGAL_CALL,
    Double,
    Settings,
    expect,
    expect_refused,
    started,
)

SUBJECT = Subject()


@SUBJECT.check("Begin before init is refused", "`TransactionManager` states")
def begin_before_init_is_refused(double: Double) -> None:
    producer = double.producer(Settings(transactional_id="a"))
    expect_refused(double, "the begin", producer.begin, ILLEGAL_CALL)


@SUBJECT.check("Begin inside of a transaction is refused", "`TransactionManager` states")
def begin_inside_of_a_transaction_is_refused(double: Double) -> None:
    producer = started(double)
    producer.begin()
    expect_refused(double, "the second begin", producer.begin, ILLEGAL_CALL)


@SUBJECT.check("Send outside of a transaction is refused", "`TransactionManager` states")
def send_outside_of_a_transaction_is_refused(double: Double) -> None:
    producer = started(double)
    expect_refused(double, "the record", lambda: producer.send("v"), ILLEGAL_CALL)


@SUBJECT.check("Offsets outside of a transaction are refused", "`TransactionManager` states")
def offsets_outside_of_a_transaction_are_refused(double: Double) -> None:
    producer, member = started(double), double.member("g")
    expect_refused(double, "the offset", lambda: producer.send_offset(1, member), ILLEGAL_CALL)


@SUBJECT.check("Commit without begin is refused", "`TransactionManager` states")
def commit_without_begin_is_refused(double: Double) -> None:
    expect_refused(double, "the commit", started(double).commit, ILLEGAL_CALL)


@SUBJECT.check("Empty transactions commit and abort, and the next one goes on", "KIP-98 EndTxn")
def empty_transactions_end(double: Double) -> None:
    producer = started(double)
    for end in (producer.commit, producer.abort):
        producer.begin()
        end()
    producer.begin()
    producer.send("v")
    producer.commit()
    expect("what is read", double.read(), ["v"])


@SUBJECT.check("`acks=1` with idempotence is refused", "KIP-98 `ProducerConfig`")
def weak_acks_are_refused(double: Double) -> None:
    settings = Settings(idempotence=True, acks="1")
    expect_refused(double, "the setting", lambda: double.producer(settings), BAD_SETTING)


@SUBJECT.check("Six requests in flight with idempotence are refused", "KIP-98 `ProducerConfig`")
def too_many_requests_in_flight_are_refused(double: Double) -> None:
    settings = Settings(idempotence=True, max_in_flight=6)
    expect_refused(double, "the setting", lambda: double.producer(settings), BAD_SETTING)


@SUBJECT.check("`transactional.id` without idempotence is refused", "KIP-98 `ProducerConfig`")
def transactions_without_idempotence_are_refused(double: Double) -> None:
    settings = Settings(transactional_id="a", idempotence=False)
    expect_refused(double, "the setting", lambda: double.producer(settings), BAD_SETTING)
