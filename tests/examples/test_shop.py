"""The shop bills every order once, and shows no row without its message, whoever is killed and when."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.examples.running import run
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

SHOP = [sys.executable, str(ROOT / "examples/shop.py")]
COUNT = 120
BOOKS = (
    "orders: {0}, order messages: {0}, invoices: {1}, invoice messages: {1}, refused: {2}\n".format
)
POINTS = (
    Failpoint.USER_UNIT_UNCOMMITTED,
    Failpoint.UNIT_COMMITTED,
    Failpoint.APPEND_RECORDED,
    Failpoint.APPEND_UNCOMMITTED,
)


def test_a_killed_worker_costs_no_order_and_doubles_none(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    placed = run("shop.py", str(path), "--kill", folder=tmp_path)
    assert placed == f"placed 300 orders; {BOOKS(300, 285, 15)}"
    again = run("shop.py", str(path), "--workers", "1", folder=tmp_path)
    assert again == f"placed 0 orders; {BOOKS(300, 285, 15)}"
    with eosdb.connect(path) as db:
        assert db.verify().ok
        errors = [
            letter.failure.error
            for letter in db.dead_letters("orders.refused").letters()
            if letter.failure is not None
        ]
    assert errors == ["CardRefusedError"] * 15


@pytest.mark.parametrize("made", [0, 1, 2])
def test_workers_make_together_what_the_shop_had_not_made_when_it_died(
    tmp_path: Path, made: int
) -> None:
    """The first commit makes the file, each of the next ones a topic; the tables come last."""
    path = tmp_path / "shop.db"
    assert run_until_killed(path, ["--workers", "0"], f"{Failpoint.UNIT_COMMITTED.value}:{made}")
    with eosdb.connect(path, read_only=True) as db:
        assert len(db.admin.list_topics()) == made
    workers = [subprocess.Popen([*SHOP, str(path), "--work"], env=environment()) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert stored(path) == {"orders": [], "invoices": []}


def run_until_killed(path: Path, arguments: list[str], point: str) -> bool:
    """Whether it was."""
    done = ended([*SHOP, str(path), *arguments], env=environment(EOSDB_FAILPOINT=point))
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def stored(path: Path) -> dict[str, list[object]]:
    """The requests in each table, which are those in its topic, in the same order."""
    found = {}
    with eosdb.connect(path, read_only=True) as db:
        tables = [name for (name,) in db.query("SELECT name FROM sqlite_schema").rows]
        for topic in ("orders", "invoices"):
            rows: list[object] = []
            if f"shop_{topic}" in tables:
                rows = [row for (row,) in db.query(f"SELECT request_id FROM shop_{topic}").rows]
            messages = db.query("SELECT value FROM committed_records WHERE topic = ?", [topic])
            told = [json.loads(value)["request_id"] for (value,) in messages.rows]
            assert sorted(map(str, rows)) == sorted(told)
            found[topic] = rows
    return found


def test_rows_and_messages_are_there_together_wherever_the_shop_dies(
    tmp_path: Path, seeds: list[int]
) -> None:
    rng = random.Random(seeds[0])
    path = tmp_path / "shop.db"
    placing, working = ["--orders", str(COUNT), "--workers", "0"], ["--work"]
    killed, before = 0, {"orders": 0, "invoices": 0}
    for number in range(5 * len(seeds)):
        arguments = placing if number % 3 == 0 or not path.exists() else working
        point = f"{rng.choice(POINTS).value}:{rng.randrange(40)}"
        killed += run_until_killed(path, arguments, point)
        counts = {t: len(rows) for t, rows in stored(path).items()} if path.exists() else before
        assert all(counts[topic] >= before[topic] for topic in counts), "nothing stored is gone"
        before = counts
    assert killed
    books = run("shop.py", str(path), "--orders", str(COUNT), "--workers", "1", folder=tmp_path)
    assert books.endswith(BOOKS(COUNT, COUNT - 6, 6))
    with eosdb.connect(path) as db:
        assert db.verify().ok
