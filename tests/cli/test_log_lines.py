"""Commands show what eosdb logs on stderr, in one format."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from tests.cli.conftest import MAIN

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} WARNING eosdb\.transactions: transactional id tx"
)


@pytest.mark.parametrize("arguments", [[], ["-v"], ["--log-level", "error"]])
def test_a_warning_is_one_line_with_its_time_its_level_and_its_logger(
    tmp_path: Path, arguments: list[str]
) -> None:
    path = str(tmp_path / "shop.db")
    with eosdb.connect(path, clock=eosdb.ManualClock(1_000)) as db:
        db.admin.create_topic("orders")
        producer = db.producer(transactional_id="tx")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v").result()
        db.abandon()
    before = logging.getLogger("eosdb").level
    done = CliRunner().invoke(MAIN, ["--db", path, *arguments, "produce", "orders"], input="v\n")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stderr.splitlines() if " WARNING " in line]
    assert len(lines) == (0 if "error" in arguments else 1)
    assert all(LINE.match(line) for line in lines)
    assert logging.getLogger("eosdb").handlers == []
    assert logging.getLogger("eosdb").level == before


def test_the_environment_names_the_level(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    runner = CliRunner(env={"EOSDB_LOG": "loud"})
    done = runner.invoke(MAIN, ["--db", path, "init"])
    assert (done.exit_code, "'loud' is not one of" in done.stderr) == (2, True)
