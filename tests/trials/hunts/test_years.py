"""Two weeks of the two years; and its judge sees what is missing, doubled, kept too long, or growing."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, RecordMetadata, TopicPartition
from tests.trials.hunts.years import __main__ as years
from tests.trials.hunts.years.calendar import DAY_MS, HOUR_MS, Calendar
from tests.trials.hunts.years.ledger import Ledger
from tests.trials.hunts.years.look import Look, grown

TP = TopicPartition("t", 0)


@pytest.mark.slow
def test_a_fortnight_with_a_leap_day_ends_as_the_ledger_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = os.environ.get("TZ")
    asked = ["--start", "2028-02-22", "--days", "10", "--per-day", "30", "--folder", str(tmp_path)]
    assert years.main(asked) == 0
    assert os.environ.get("TZ") == zone
    printed = capsys.readouterr().out
    _heading, march, end, *told = printed.splitlines()
    assert march.startswith("2028-03-01")
    assert end.startswith("2028-03-03")
    counts = dict(line.split(": ") for line in told[:-1])
    for name in (
        "transactional ids expired", "idempotency keys expired", "sinks expired", "batches repeated",
        "sequences wrapped", "invoices seen", "records compared",
    ):  # fmt: skip
        assert int(counts[name].replace(",", "")) > 0, name
    assert told[-1] == "all is well"


def test_the_clock_is_set_back_and_no_time_is_lost() -> None:
    calendar = Calendar(date(2027, 10, 31))
    began = calendar.monotonic_ms()
    calendar.advance_to(began + 2 * HOUR_MS)
    calendar.turn(-HOUR_MS)
    calendar.advance_to(began + DAY_MS)
    assert calendar.today() == date(2027, 11, 1)
    assert calendar.monotonic_ms() - began == DAY_MS + HOUR_MS
    assert calendar.latest_ms == calendar.time_ms()


@pytest.fixture(name="calendar")
def _calendar() -> Calendar:
    return Calendar(date(2027, 1, 1))


@pytest.fixture(name="db")
def _db(tmp_path: Path, calendar: Calendar) -> eosdb.Database:
    db = eosdb.connect(tmp_path / "a.db", clock=calendar, durability="off")
    db.admin.create_topic("t")
    return db


def _told(db: eosdb.Database, calendar: Calendar, *values: bytes) -> Ledger:
    """The ledger of somebody who was told that these are stored, after a comparison."""
    ledger = Ledger()
    for offset, value in enumerate(values):
        ledger.note(RecordMetadata("t", 0, offset, calendar.time_ms()), value)
    ledger.compare(db, calendar)
    return ledger


def test_what_is_missing_or_doubled_is_told(db: eosdb.Database, calendar: Calendar) -> None:
    with db:
        db.broker.append(TP, RecordBatch([Record(value=b"1"), Record(value=b"1")]))
        assert _told(db, calendar, b"1", b"1").problems == []
        (doubled,) = _told(db, calendar, b"1").problems
        assert "0 acknowledged records are missing, 1 are too many" in doubled
        (missing,) = _told(db, calendar, b"1", b"1", b"2").problems
        assert "1 acknowledged records are missing, 0 are too many" in missing


def test_what_goes_too_early_or_stays_too_long_is_told(
    db: eosdb.Database, calendar: Calendar
) -> None:
    with db:
        db.producer(transactional_id="idle").init_transactions()
        db.broker.append(TP, RecordBatch([Record(value=b"1")]))
        ledger = _told(db, calendar, b"1")
        ledger.ids = {"idle": calendar.time_ms(), "another": calendar.time_ms()}
        db.broker.delete_records(TP, -1)
        ledger.compare(db, calendar)
        assert ledger.problems == [
            f"{TP}: offset 0 was removed before its time",
            "transactional ids: another is gone after 0 ms",
        ]
        ledger.problems.clear()
        db.broker.append(TP, RecordBatch([Record(value=b"2")]))
        ledger.note(RecordMetadata("t", 0, 1, calendar.time_ms()), b"2")
        calendar.sleep_ms(8 * DAY_MS)
        ledger.compare(db, calendar)
        assert [problem.split(", ")[0] for problem in ledger.problems] == [
            f"{TP}: offset 1 is still there",
            "transactional ids: idle is still there",
        ]


def test_what_has_more_in_the_second_half_has_grown() -> None:
    def looks(*rows: float) -> list[Look]:
        return [Look("a day", 1, {"t rows": count, "file MB": 10.0}) for count in rows]

    flat = [500.0] * 6
    assert grown(looks(*flat, *flat)) == []
    assert grown(looks(*flat, *[520.0] * 6)) == [], "by less than a tenth"
    assert grown(looks(*flat, *[600.0] * 6)) == ["t rows: 500.0 before the half, 600.0 after it"]
    assert grown(looks(*flat, 900.0, *[500.0] * 5)) == [], "one look is no growth"
