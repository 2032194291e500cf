"""How transactions are laid out in a picture: as bars while they are few, as columns when they are many."""

from __future__ import annotations

import eosdb
from eosdb.integrations.ui import timeline
from eosdb.model.clock import ManualClock


def written(db: eosdb.Database, transactions: int, clock: ManualClock | None = None) -> None:
    db.admin.create_topic("t")
    with db.producer(transactional_id="a") as producer:
        producer.init_transactions()
        for number in range(transactions):
            producer.begin_transaction()
            producer.send("t", b"x")
            producer.flush()
            if clock is not None and number == 2:
                clock.advance(5_000)
            if number == transactions // 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def test_a_few_transactions_are_bars_that_lead_to_them() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        written(db, 5, clock)
        drawn = timeline.draw(db, "t", 0, None, None)
    assert not drawn.is_aggregated
    assert [one.fate for one in drawn.shapes] == [
        "committed",
        "committed",
        "aborted",
        "committed",
        "committed",
    ]
    assert {one.transactional_id for one in drawn.shapes} == {"a"}
    assert [one.x for one in drawn.shapes] == sorted(one.x for one in drawn.shapes)
    assert [tick.name for tick in drawn.ticks if tick.name] == ["2026-11-22 12:00:00", "12:00:05"]


def test_many_transactions_are_columns_and_the_aborted_one_is_seen() -> None:
    with eosdb.connect(":memory:") as db:
        written(db, 1_000)
        drawn = timeline.draw(db, "t", 0, None, None)
        part = timeline.draw(db, "t", 0, 1_000, 1_050)
    assert drawn.is_aggregated
    assert len(drawn.shapes) < 3 * timeline.COLUMNS
    aborted = [one for one in drawn.shapes if one.fate == "aborted"]
    assert all(one.height >= 3 for one in aborted)
    assert any("1 aborted" in one.title for one in aborted)
    assert not part.is_aggregated
    assert (part.timeline.start, part.timeline.end) == (1_000, 1_050)


def test_long_and_open_transactions_lie_above_the_columns_by_offset_and_by_time() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        db.admin.create_topic("t")
        names = ("busy", "long", "open")
        busy, long, still_open = (db.producer(transactional_id=name) for name in names)
        for producer in (busy, long, still_open):
            producer.init_transactions()
        for number in range(400):
            clock.advance(100)
            if number in (100, 390):
                other = long if number == 100 else still_open
                other.begin_transaction()
                other.send("t", b"x")
                other.flush()
            if number == 200:
                long.commit_transaction()
            with busy.transaction():
                busy.send("t", b"x")
        for by in ("offset", "time"):
            drawn = timeline.draw(db, "t", 0, None, None, by)
            bars = [one for one in drawn.shapes if one.transactional_id]
            assert [one.transactional_id for one in bars] == ["long", "open"]
            columns = [one for one in drawn.shapes if not one.transactional_id]
            roof = min(one.y for one in columns)
            assert all(one.y + one.height <= roof for one in bars)
            assert len(columns) <= 4 * timeline.COLUMNS
            assert max(one.y + one.height for one in columns) <= drawn.height
        assert [tick.name for tick in drawn.ticks][:2] == ["2026-11-22 12:00:05", "12:00:10"]
        found = db.admin.first_record_at(eosdb.TopicPartition("t", 0), 1_795_348_805_000)
        assert found is not None
        assert drawn.ticks[0].offset == found.offset
        part = timeline.draw(db, "t", 0, 1_795_348_805_000, 1_795_348_806_000, "time")
        assert part.window == ("2026-11-22T12:00:05.000Z", "2026-11-22T12:00:06.000Z")
        assert part.timeline.total == 10
        db.abandon()


def test_a_log_without_records_is_drawn_empty() -> None:
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        drawn = timeline.draw(db, "t", 0, None, None)
    assert drawn.shapes == ()
    assert [mark.name for mark in drawn.marks] == ["log start, LSO, log end"]
