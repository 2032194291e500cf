"""`eosdb migrate-to-kafka`: the plan as a table and as JSON, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.testing.kafka import KafkaDouble
from tests.cli.conftest import MAIN
from tests.integrations.relay.contents import contents, fill

pytestmark = pytest.mark.slow


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(MAIN, ["migrate-to-kafka", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_plan_is_printed_and_nothing_is_done(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    status, out, err = _run(shop.path, "--to", cluster, "--format", "json")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert {"Step": "create topic", "Subject": "orders", "State": "to do"}.items() <= rows[
        0
    ].items()
    assert cluster.db.admin.list_topics() == []


def test_it_is_done_once_and_taken_back(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    status, out, err = _run(shop.path, "--to", cluster, "--execute", "--format", "json")
    assert status == 0, err
    assert f"let the programs connect to {cluster}" in err
    rows = json.loads(out)
    assert {row["State"] for row in rows if row["Step"] != "note"} == {"done"}
    assert any(row["Subject"] == "billing" and "orders-0: " in row["Detail"] for row in rows)
    assert contents(cluster.db) == contents(shop)
    status, again, err = _run(shop.path, "--to", cluster, "--execute")
    assert (status, err) == (0, "")
    assert "to do" not in again
    assert _run(shop.path, "--to", cluster, "--undo")[0] == 0
    fill(shop, [1])


def test_obstacles_are_rows_and_the_exit_status(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    cluster.db.admin.create_topic("orders", 3)
    status, out, err = _run(shop.path, "--to", cluster)
    assert status == 1
    assert "2 partitions here and 3 in the cluster" in out
    assert "1 obstacles" in err
    status, out, err = _run(shop.path, "--to", cluster, "--execute")
    assert (status, out) == (1, "")
    assert "2 partitions here and 3 in the cluster" in err


def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, cluster: KafkaDouble) -> None:
    status, _, err = _run(str(tmp_path / "none.db"), "--to", cluster)
    assert status == 1
    assert err.count("\n") == 1
    status, _, err = _run(str(tmp_path / "none.db"), "--to", cluster, "--execute", "--undo")
    assert (status, "opposites" in err) == (2, True)
    with eosdb.connect(tmp_path / "shop.db") as db:
        db.admin.create_topic("orders")
    status, _, err = _run(str(tmp_path / "shop.db"), "--to", cluster, "--topic", "ordrs")
    assert (status, "has no topic 'ordrs'" in err) == (1, True)


def test_a_plan_for_a_cluster_that_is_not_there_fails_and_has_changed_nothing(
    shop: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eosdb.integrations.moving.move._PLAN_PATIENCE_MS", 0)
    # What librdkafka says of the connection is what ends it.
    monkeypatch.setattr("eosdb.integrations.relay.kafka_client.TIMEOUT_S", 600.0)
    status, out, err = _run(shop.path, "--to", "127.0.0.1:1")
    assert (status, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert "outcome" not in err
