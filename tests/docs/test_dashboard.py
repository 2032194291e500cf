"""The dashboard for Grafana asks for metrics that `eosdb metrics` prints, by labels that they have."""

from __future__ import annotations

import json
import re
from typing import Any

from click.testing import CliRunner

import eosdb
from eosdb.cli.main import main
from tests.tidy.tree import ROOT

DASHBOARD = json.loads((ROOT / "docs/assets/grafana.json").read_text(encoding="utf-8"))


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_every_metric_of_the_dashboard_is_printed_with_its_labels(db: eosdb.Database) -> None:
    for topic in ("orders", "orders.dlq"):
        db.admin.create_topic(topic)
    with db.producer(transactional_id="shop") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", "v")

        def fails(record: eosdb.ConsumerRecord) -> None:
            raise ValueError

        eosdb.process(
            db, "orders", fails, group_id="g", dead_letter_topic="orders.dlq",
            max_attempts=1, until_idle_ms=50,
        )  # fmt: skip
        producer.begin_transaction()
        producer.send("orders", "v")
        producer.flush()
        printed = CliRunner().invoke(main, ["metrics", str(db.path)]).output
    labels = {
        name: set(re.findall(r'(\w+)="', braces))
        for name, braces in re.findall(r"(?m)^(eosdb_\w+)(\{.*\})? ", printed)
    }
    for panel in DASHBOARD["panels"]:
        for expression in expressions(panel):
            asked = re.findall(r"eosdb_\w+", expression)
            assert asked, panel["title"]
            for name in asked:
                by = re.search(r"by \((\w+)\)", expression)
                assert name in labels, panel["title"]
                assert by is None or by[1] in labels[name], panel["title"]


def test_no_two_panels_lie_on_each_other() -> None:
    seen: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        cells = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24
        assert not cells & seen, panel["title"]
        seen |= cells
