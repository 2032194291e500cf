"""What commands say about a file or topic that is not as the user thought, and how much of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("command", "how"),
    [("serve", "--create, or `eosdb init "), ("info", "`eosdb init ")],
)
def test_a_command_names_its_own_way_to_make_the_file(
    run: Run, db_path: Path, command: str, how: str
) -> None:
    result = run(command)
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: DatabaseNotFoundError: {db_path} does not exist; create it with {how}{db_path}`\n"
    )


def test_a_topic_that_exists_with_other_partitions_is_told(
    run: Run, db_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("init")
    run("topics", "create", "t", "--partitions", "2")
    again = ("topics", "create", "t", "--if-not-exists")
    assert run(*again, "--partitions", "2").stdout == run(*again).stdout == "topic t exists\n"
    result = run(*again, "--partitions", "3")
    assert (result.exit_code, result.stdout) == (0, "topic t exists, with 2 partitions\n")
    with eosdb.connect(db_path) as db, caplog.at_level(logging.WARNING, "eosdb"):
        for same in (None, 2):
            db.admin.create_topic("t", same, exist_ok=True)
        assert caplog.records == []
        assert db.admin.create_topic("t", 3, exist_ok=True).partitions == 2
    (line,) = caplog.records
    assert (line.name, vars(line)["action"]) == ("eosdb.log", "topic_has_other_partitions")
    assert (vars(line)["partitions"], vars(line)["wanted"]) == (2, 3)


def test_sizes_are_the_ten_largest_lines_and_all_for_programs(run: Run) -> None:
    run("init")
    run("topics", "create", "t")
    run("produce", "t", stdin="a\n")
    few = run("info", "--sizes")
    every = json.loads(run("info", "--sizes", "--format", "json").stdout)
    shown, lines = few.stdout.splitlines()[1:], [row["BYTES"] for row in every]
    assert len(shown) == 10 < len(lines)
    assert [shown[0].split()[0], shown[-1].split()[:3]] == ["total", ["journal", "of", "a"]]
    sizes = sorted(lines[1:-1], reverse=True)
    assert sorted((int(line.split()[-1]) for line in shown[1:-1]), reverse=True) == sizes[:8]
    assert few.stderr == f"{len(lines) - 10} smaller parts: eosdb info --sizes --format csv\n"
