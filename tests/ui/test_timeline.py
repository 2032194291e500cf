"""How transactions are laid out in a picture: as bars while they are few, as columns when they are many."""

from __future__ import annotations

import eosdb
from eosdb.clock import ManualClock
from eosdb.ui import timeline


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
    (aborted,) = (one for one in drawn.shapes if one.fate == "aborted")
    assert aborted.height >= 3
    assert "1 aborted" in aborted.title
    assert not part.is_aggregated
    assert (part.timeline.start, part.timeline.end) == (1_000, 1_050)


def test_a_log_without_records_is_drawn_empty() -> None:
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        drawn = timeline.draw(db, "t", 0, None, None)
    assert drawn.shapes == ()
    assert [mark.name for mark in drawn.marks] == ["log start, LSO, log end"]
