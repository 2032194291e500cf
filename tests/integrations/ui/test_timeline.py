"""The picture of a partition on its page: bars and columns lead somewhere, and the form has its window."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import eosdb
from eosdb.integrations.ui import pages
from eosdb.model.clock import ManualClock

HARM = 'a&b"<c>/ü'


def links(drawn: pages.Drawn) -> list[str]:
    return [one.get("href", "") for one in ET.fromstring(drawn.svg).iter("a")]


def write(db: eosdb.Database, transactions: int, name: str = "a") -> None:
    with db.producer(transactional_id=name) as producer:
        producer.init_transactions()
        for _ in range(transactions):
            with producer.transaction():
                producer.send("t", b"x")


def test_a_bar_leads_to_its_transaction_whatever_its_name() -> None:
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        write(db, 2, HARM)
        drawn = pages.draw(db, "t", 0, None, None)
    assert links(drawn) == ["/transaction?id=a%26b%22%3Cc%3E%2F%C3%BC"] * 2


@pytest.mark.slow
def test_a_column_leads_into_its_part_of_the_axis() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        db.admin.create_topic("t")
        for _ in range(20):
            clock.advance(1_000)
            write(db, 20)
        for by in ("offset", "time"):
            drawn = pages.draw(db, "t", 0, None, None, by)
            columns = [link for link in links(drawn) if link.startswith("/topics/t/timeline?")]
            assert 0 < len(columns) <= pages.COLUMNS
            edges = re.search(r"&from=(\d+)&to=(\d+)$", columns[0])
            assert edges is not None
            low, high = map(int, edges.groups())
            assert pages.draw(db, "t", 0, low, high, by).timeline.total > 0
            assert f"by={by}&partition=0" in columns[0]


def test_the_form_has_the_window_and_its_neighbours() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        db.admin.create_topic("t")
        for _ in range(5):
            clock.advance(1_000)
            write(db, 1)
        part = pages.draw(db, "t", 0, 2, 4)
        times = pages.draw(db, "t", 0, 1_795_348_802_000, 1_795_348_804_000, "time")
        whole = pages.draw(db, "t", 0, None, None)
    assert (part.window, part.halves) == (("2", "4"), (("0", "2"), ("4", "6")))
    assert times.window == ("2026-11-22T12:00:02.000Z", "2026-11-22T12:00:04.000Z")
    assert times.timeline.total == 2
    assert part.is_part
    assert not whole.is_part
