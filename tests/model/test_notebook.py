"""A notebook shows a database, its reports and timelines; names of others stay text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import eosdb

HARM = "<script>alert('&')</script>"


def test_a_report_is_a_table_of_its_fields(db: eosdb.Database) -> None:
    db.admin.create_topic("orders")
    for report in (db.verify(), db.rebuild(), db.housekeeping(), db.admin.describe_topic("orders")):
        shown = report._repr_html_()
        table = ET.fromstring(f"<div>{shown}</div>").find("table")
        assert table is not None
        assert table.findtext("caption") == type(report).__name__
    verified = db.verify()._repr_html_()
    assert ">ok</th><td>True</td>" in verified
    assert "partitions</caption>" in db.admin.describe_topic("orders")._repr_html_()


def test_a_database_shows_its_topics_and_groups_without_markup_of_their_names(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("orders", partitions=25)
    db.producer().send("orders", b"x", partition=0)
    consumer = db.consumer(HARM)
    consumer.subscribe(["orders"])
    consumer.poll(0)
    shown = db._repr_html_()
    assert shown is not None
    assert ET.fromstring(f"<div>{shown}</div>").findall("table")
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "partitions (the first 20 of 25)" in shown
    db.close()
    assert db._repr_html_() is None


def test_a_timeline_is_its_picture(db: eosdb.Database) -> None:
    db.admin.create_topic("orders")
    with db.producer(transactional_id=HARM) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"x")
    timelines = db.admin.timeline("orders")
    picture = timelines._repr_svg_()  # type: ignore[attr-defined]  # The promise is a tuple.
    root = ET.fromstring(picture)
    assert root.tag.endswith("svg")
    assert {"viewBox", "width", "height"} & set(root.keys()) == {
        "viewBox"
    }  # So it is as wide as the cell.
    assert "<script" not in picture
