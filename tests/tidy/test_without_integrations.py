"""The engine carries the promise alone: every integration may be taken off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.process, pytest.mark.real_start]

PROGRAM = """
import sys
import eosdb

with eosdb.connect(sys.argv[1]) as db:
    db.admin.create_topic("orders", partitions=2)
    producer = db.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.send("orders", key=str(number).encode(), value=b"v")
    producer.commit_transaction()
    consumer = db.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    records = consumer.poll(0)
    consumer.commit()
    print(eosdb.__file__, len(records), db.verify().ok)
"""


def test_without_them_a_program_connects_commits_reads_and_verifies(tmp_path: Path) -> None:
    package = tmp_path / "eosdb"
    for name, source in (("", "eosdb"), ("cli", "cli"), ("migrations", "migrations")):
        ignored = shutil.ignore_patterns("__pycache__", "cli", "migrations", "spark_io")
        shutil.copytree(ROOT / source, package / name, ignore=ignored, dirs_exist_ok=True)
    shutil.rmtree(package / "integrations")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("program.py", "orders.db").split() == [str(package / "__init__.py"), "10", "True"]
    assert run("-m", "eosdb", "--db", "orders.db", "verify").startswith("ok")
