"""The report of a processor: what it has committed, and what it met."""

from __future__ import annotations

import dataclasses

import pytest

import eosdb

FIGURES = ("processed", "produced", "retried", "dead_lettered", "failed", "commits", "aborts")


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic)


def figures(report: eosdb.ProcessReport) -> dict[str, int]:
    return {name: getattr(report, name) for name in FIGURES}


def test_every_figure_is_there_also_when_nothing_was_read(db: eosdb.Database) -> None:
    report = eosdb.process(db, "in", print, group_id="g", until_idle_ms=50)
    assert figures(report) == dict.fromkeys(FIGURES, 0)
    assert repr(report).startswith("ProcessReport(processed=0, produced=0, ")
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.processed = 1  # type: ignore[misc]


@pytest.mark.parametrize("has_tables", [False, True])
def test_it_counts_records_results_retries_and_dead_letters(
    db: eosdb.Database, has_tables: bool
) -> None:
    def twice(record: eosdb.ConsumerRecord) -> list[bytes]:
        return [b"%d" % int(record.value)] * 2

    def twice_with_tables(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> list[bytes]:
        return twice(record)

    db.producer().send_many("in", ["1", "2", "three"])
    report = eosdb.process(
        db, "in", twice_with_tables if has_tables else twice, "out", group_id="g", max_attempts=1,
        retry_delays_ms=[1], dead_letter_topic="dlq", until_idle_ms=50,
    )  # fmt: skip
    counted = {**figures(report), "commits": 0}
    assert counted == {
        "processed": 2, "produced": 4, "retried": 1, "dead_lettered": 1, "failed": 2, "commits": 0,
        "aborts": 0,
    }  # fmt: skip
    assert report.commits > 0
    assert report.metrics["process-total"] == 2


@pytest.mark.slow
def test_what_was_undone_and_processed_again_counts_once(db: eosdb.Database) -> None:
    db.producer().send_many("in", ["a", "b", "c"])
    calls = 0

    def handle(record: eosdb.ConsumerRecord) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 3:
            (member,) = db.broker.describe_group("g").members
            db.broker.leave_group("g", [member.member_id])
        return bytes(record.value)

    report = eosdb.process(
        db, "in", handle, "out", group_id="g", transaction_interval_ms=60_000, until_idle_ms=50
    )
    assert calls == 6
    assert (report.processed, report.produced, report.aborts) == (3, 3, 1)
    assert report.metrics["process-total"] == 6
