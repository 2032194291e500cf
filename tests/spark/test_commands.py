"""`eosdb spark`: the common jobs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eosdb
from eosdb import TopicPartition
from tests.cli.conftest import MAIN
from tests.readers import committed_values
from tests.spark import small
from tests.spark_io.making import out
from tests.tidy.tree import ROOT

Run = Callable[..., Result]


@pytest.fixture
def run(spark: Any) -> Run:
    """Runs a job in the session that all tests share."""

    def call(path: Path, *arguments: str) -> Result:
        result = CliRunner().invoke(MAIN, ["--db", str(path), "spark", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def test_a_job_starts_spark_by_itself_and_its_workers_run_the_same_python(shop: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eosdb.cli", "--db", str(shop), "spark", "read"],
        # The Python that is first in this path has no eosdb.
        env={
            **{name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"},
            **small.environment(),
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|orders|" in done.stdout


def test_records_are_shown_and_asked_for_with_sql(shop: Path, run: Run) -> None:
    done = run(shop, "read", "--sql", "SELECT topic, count(*) AS n FROM records GROUP BY topic")
    assert done.exit_code == 0, done.stderr
    with eosdb.connect(shop) as db:
        count = sum(len(committed_values(db, TopicPartition("orders", p))) for p in (0, 1))
    assert re.search(rf"\|orders\| *{count} *\|", done.stdout)


def test_a_stream_goes_on_where_it_stopped(shop: Path, tmp_path: Path, run: Run) -> None:
    with eosdb.connect(shop) as db:
        db.admin.create_topic("out")
        expected = sorted(
            (value or b"").upper()
            for p in (0, 1)
            for value in committed_values(db, TopicPartition("orders", p))
        )
    for _ in range(2):
        done = run(
            shop, "stream", "--subscribe", "orders", "--to-topic", "out", "--group", "job",
            "--checkpoint", str(tmp_path / "cp"), "--sql", "SELECT key, upper(value) AS value FROM records",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
    assert out(shop) == expected
    with eosdb.connect(shop) as db:
        assert [p.lag for p in db.admin.describe_group_offsets("job").partitions] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["read", "--subscribe", "nowhere"], 1, "no nowhere in any of the files"),
        (["stream", "--checkpoint", "cp"], 2, "--to-topic or --to-parquet"),
        (["read", "--option", "x"], 2, "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_one_line(
    shop: Path, run: Run, arguments: list[str], status: int, text: str
) -> None:
    done = run(shop, *arguments)
    assert done.exit_code == status
    assert text in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
