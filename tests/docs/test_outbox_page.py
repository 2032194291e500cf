"""The way of docs/outbox.md without the loop, `bill_all`, under the faults that the page speaks of."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table

import eosdb
from eosdb import ManualClock, TopicPartition
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow

TP = TopicPartition("orders", 0)


class Page:
    """What the page defines, on a file with three orders."""

    def __init__(self, db: eosdb.Database) -> None:
        self.db = db
        invoices = Table(
            "shop_invoices",
            MetaData(),
            Column("record", Integer, primary_key=True),
            Column("item", String),
        )
        invoices.metadata.create_all(db.engine)
        db.admin.create_topic("orders")
        with db.producer() as producer:
            producer.send_many("orders", [("a", b"1"), ("b", b"2"), ("c", b"3")])
        self.names: dict[str, Any] = {"eosdb": eosdb, "db": db, "invoices": invoices}
        text = (ROOT / "docs/outbox.md").read_text()
        for pattern in (r"(?s)\ndef bill\(.*?\n\n\n", r"(?s)\nLOST = .*?\n\n\n(?=with)"):
            (source,) = re.findall(pattern, text)
            exec(source, self.names)

    def consumer(self) -> eosdb.Consumer:
        consumer = self.db.consumer("g", auto_offset_reset="earliest")
        consumer.subscribe("orders")
        return consumer

    def before_each(self, action: Callable[[Any], None]) -> None:
        bill = self.names["bill"]

        def both(record: Any, tx: Any) -> None:
            bill(record, tx)
            action(record)

        self.names["bill"] = both

    def billed(self) -> list[str]:
        rows = self.db.query("SELECT item FROM shop_invoices ORDER BY record").rows
        return [item for (item,) in rows]


@pytest.fixture
def page(db: eosdb.Database) -> Page:
    return Page(db)


def test_a_block_that_fails_leaves_no_row_and_is_met_again(page: Page) -> None:
    fails = True

    def fail(record: Any) -> None:
        if fails and record.key == b"b":
            raise ZeroDivisionError

    page.before_each(fail)
    with page.consumer() as consumer:
        with pytest.raises(ZeroDivisionError):
            page.names["bill_all"](consumer)
        assert page.billed() == []
        assert page.db.broker.offset_fetch("g") == {}
        fails = False
        page.names["bill_all"](consumer)
    assert page.billed() == ["a", "b", "c"]
    assert page.db.broker.offset_fetch("g")[TP].offset == 3


def test_a_member_that_lost_its_partitions_stores_nothing(
    page: Page, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends between the poll and the block, and somebody else does its work."""
    consumer, heir = page.consumer(), page.consumer()
    records: list[object] = []
    asked: list[bool] = []
    poll, ask = consumer.poll, consumer.enforce_rebalance

    def slow_poll(**more: Any) -> Any:
        found = poll(**more)
        if found and not records:
            records.extend(found)
            clock.advance(50_000)
            while not heir.assignment():
                heir.poll()
                clock.advance(100)
            page.names["bill_all"](heir)
            heir.close()
        return found

    def ask_again() -> None:
        asked.append(True)
        ask()

    monkeypatch.setattr(consumer, "poll", slow_poll)
    monkeypatch.setattr(consumer, "enforce_rebalance", ask_again)
    while not consumer.assignment():
        poll()
        heir.poll()
        clock.advance(100)
    page.names["bill_all"](consumer)
    assert (len(records), len(asked)) == (3, 1)
    consumer.close()
    assert page.billed() == ["a", "b", "c"]
    assert page.db.broker.offset_fetch("g")[TP].offset == 3
