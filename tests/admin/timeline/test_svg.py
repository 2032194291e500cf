"""The picture of a topic: bars while transactions are few, columns when they are many."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import eosdb
from eosdb.admin.timeline import svg
from eosdb.model.clock import ManualClock

SVG = "{http://www.w3.org/2000/svg}"


def write(db: eosdb.Database, transactions: int, clock: ManualClock | None = None) -> None:
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


def bars(root: ET.Element) -> list[ET.Element]:
    return [
        next(g.iter(f"{SVG}rect"))
        for g in root.iter(f"{SVG}g")
        if g.get("id", "").startswith("transaction-")
    ]


def test_a_few_transactions_are_bars_from_left_to_right() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        write(db, 5, clock)
        root = ET.fromstring(svg.document(db.admin.timeline("t")))
        by_time = ET.fromstring(svg.document(db.admin.timeline("t", by="time")))
    committed = "committed"
    assert [bar.get("class") for bar in bars(root)] == [committed] * 2 + ["aborted"] + [
        committed
    ] * 2
    lefts = [float(bar.get("x", "")) for bar in bars(root)]
    assert lefts == sorted(set(lefts))
    words = [text.text or "" for text in by_time.iter(f"{SVG}text")]
    assert [word for word in words if re.match(r"\d\d:|\d{4}-", word)][:2] == [
        "2026-11-22 12:00:00.000", "12:00:01.000",
    ]  # fmt: skip


@pytest.mark.slow
def test_many_are_columns_in_which_the_aborted_one_is_seen() -> None:
    with eosdb.connect(":memory:") as db:
        write(db, 1_000)
        content = svg.document(db.admin.timeline("t"))
        part = svg.document(db.admin.timeline("t", start=1_000, end=1_050))
    assert not bars(ET.fromstring(content))
    (aborted,) = re.findall(r'<path id="band-0-aborted"[^>]* d="(.*?)"', content)
    assert all(float(size) >= 3 for size in re.findall(r"(?:v-|h)([\d.]+)", aborted))
    assert len(bars(ET.fromstring(part))) == 25


@pytest.mark.slow
def test_bars_lie_above_the_columns() -> None:
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
            content = svg.document(db.admin.timeline("t", by=by))
            drawn = bars(ET.fromstring(content))
            assert [bar.get("class") for bar in drawn] == ["committed", "open"]
            (band,) = re.findall(r'<path id="band-0-committed"[^>]* d="(.*?)"', content)
            columns = re.findall(r"M\S+ ([\d.]+)v-([\d.]+)", band)
            roof = min(float(bottom) - float(height) for bottom, height in columns)
            assert all(
                float(bar.get("y", "")) + float(bar.get("height", "")) <= roof for bar in drawn
            )
        db.abandon()


def test_of_narrow_bars_in_a_row_with_one_name_the_first_is_named() -> None:
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        for name in ("arriving", "arriving", "arriving", "another", "arriving"):
            db.broker.append(
                eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record(value=b"x")] * 100)
            )
            with db.producer(transactional_id=name) as producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("t", b"x")
        root = ET.fromstring(svg.document(db.admin.timeline("t")))
    names = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "name"]
    assert names == ["arriving", "another", "arriving"]
    assert len(bars(root)) == 5


def test_a_log_without_records_has_its_offsets_alone() -> None:
    with eosdb.connect(":memory:") as db:
        db.admin.create_topic("t")
        words = list(ET.fromstring(svg.document(db.admin.timeline("t"))).itertext())
    assert "0 transactions · log 0 to 0, LSO 0" in words
    assert "no records" in words


def test_marks_are_lines_through_all_lanes_and_each_lane_is_a_table() -> None:
    with eosdb.connect(":memory:", clock=(clock := ManualClock(1_795_348_800_000))) as db:
        write(db, 5, clock)
        content = svg.document(
            db.admin.timeline("t", by="time"), [(1_795_348_802_500, "ingest killed")]
        )
    root = ET.fromstring(content)
    assert (root.get("role"), root.findtext(f"{SVG}title")) == ("group", "Timeline of t")
    (table,) = (g for g in root.iter(f"{SVG}g") if g.get("role") == "table")
    rows = [g for g in table if g.get("role") == "row"]
    assert len(rows) == 5
    assert (
        rows[0].findtext(f".//{SVG}title", "").startswith("a: committed, 1 record, from offset 0, ")
    )
    lines = [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("class") == "mark"]
    (low, high) = float(bars(root)[0].get("x", "")), float(bars(root)[-1].get("x", ""))
    assert low < float(lines[-1][1:].split()[0]) < high
    assert "ingest killed" in root.itertext()
