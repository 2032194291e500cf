"""An order service that is killed at any instant never shows an order without its message, nor the
reverse, nor an invoice without the offset that goes with it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.failpoints import Failpoint
from tests.crash.children import environment
from tests.tidy.tree import ROOT

COUNT = 120
TP = TopicPartition("orders", 0)
POINTS = (
    Failpoint.USER_UNIT_UNCOMMITTED,
    Failpoint.UNIT_COMMITTED,
    Failpoint.APPEND_RECORDED,
    Failpoint.APPEND_UNCOMMITTED,
)


def run(path: Path, point: str | None) -> tuple[int, str]:
    extra = {} if point is None else {"EOSDB_FAILPOINT": point}
    done = subprocess.run(
        [sys.executable, "demo/order_service.py", str(path), str(COUNT)],
        cwd=ROOT,
        env=environment(**extra),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout


def check(path: Path) -> tuple[int, int]:
    """How many orders and invoices there are."""
    with eosdb.connect(path, read_only=True) as db:
        if not list(db.query("SELECT 1 FROM sqlite_master WHERE name = 'shop_invoices'").rows):
            return 0, 0
        orders = list(db.query("SELECT id, request_id FROM shop_orders ORDER BY id").rows)
        messages = list(
            db.query(
                "SELECT \"offset\", json_extract(CAST(value AS TEXT), '$.request') "
                "FROM committed_records WHERE topic = 'orders' ORDER BY 1"
            ).rows
        )
        assert orders == messages
        assert [request for _, request in orders] == [f"request-{i}" for i in range(len(orders))]
        invoices = [i for (i,) in db.query("SELECT order_id FROM shop_invoices ORDER BY 1").rows]
        committed = db.broker.offset_fetch("billing").get(TP)
        assert invoices == list(range(committed.offset if committed else 0))
        return len(orders), len(invoices)


def test_rows_and_messages_are_there_together_wherever_the_service_dies(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(5)
    path = tmp_path / "shop.db"
    killed, before = 0, (0, 0)
    for _ in range(4 * request.config.getoption("--seeds")):
        status, _ = run(path, f"{rng.choice(POINTS).value}:{rng.randrange(40)}")
        killed += status != 0
        counts = check(path) if path.exists() else (0, 0)
        assert counts >= before, "nothing that was stored is gone"
        before = counts
    assert killed
    status, _ = run(path, None)
    assert status == 0
    assert check(path) == (COUNT, COUNT)
    with eosdb.connect(path) as db:
        assert db.verify().ok
    assert run(path, None)[1].startswith("placed 0 orders, billed 0;")
