"""`produce`, `consume` and `tail`: keys, JSON lines, files that are whole, and the last records."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import eosdb
from tests.cli.conftest import MAIN

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    clock = eosdb.ManualClock(start_ms=1_700_000_000_000)
    with eosdb.connect(path, clock=clock) as db:
        db.admin.create_topic("orders", partitions=2)
        producer = db.producer(transactional_id="p")
        producer.init_transactions()
        for number in range(12):
            clock.advance(1)
            producer.begin_transaction()
            producer.send("orders", f"v{number}", partition=number % 2)
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send("orders", "taken back", partition=0)
        producer.abort_transaction()
    return path


def run(path: Path, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(MAIN, ["--db", str(path), *words], input=stdin)


def test_last_prints_the_last_records_of_all_partitions_in_order(path: Path) -> None:
    assert run(path, "consume", "orders", "--last", "5").stdout.split() == [
        "v7",
        "v8",
        "v9",
        "v10",
        "v11",
    ]
    assert run(path, "consume", "orders", "--last", "100").stdout.split() == [
        f"v{i}" for i in range(12)
    ]
    assert run(path, "consume", "orders", "--last", "0").stdout == ""


@pytest.mark.process
def test_last_follows_with_an_object_a_line(path: Path) -> None:
    words = ["--db", str(path), "consume", "orders", "--last", "1", "--follow", "--format", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "eosdb.cli", *words], stdout=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        try:
            assert json.loads(tail.stdout.readline())["value"] == "v11"
            with eosdb.connect(path) as db:
                db.producer().send("orders", "new")
            assert json.loads(tail.stdout.readline())["value"] == "new"
            tail.send_signal(signal.SIGINT)
            assert tail.wait(60) == 0
        finally:
            tail.kill()


@pytest.mark.parametrize(
    ("words", "line", "expected"),
    [
        (["--fixed-key", "ann"], "a:b", ("ann", "a:b")),
        (["--key-separator", ":"], "a:b:c", ("a", "b:c")),
        (["--property", "parse.key=true"], "a\tb", ("a", "b")),
        (["--property", "parse.key=true", "--property", "key.separator=|"], "a|b", ("a", "b")),
        (["--fixed-key", "ann", "--property", "null.marker=NULL"], "NULL", ("ann", None)),
        (["--property", "key.separator=:"], "a:b", (None, "a:b")),
    ],
)
def test_produce_takes_keys_as_kafka_console_producer_does(
    path: Path, words: list[str], line: str, expected: tuple[str | None, str | None]
) -> None:
    assert run(path, "produce", "orders", *words, stdin=line + "\n").exit_code == 0
    with eosdb.connect(path) as db:
        row = db.query("SELECT key, value FROM committed_records ORDER BY timestamp DESC").first()
    assert row is not None
    assert tuple(None if data is None else data.decode() for data in row) == expected


@pytest.mark.parametrize(
    "words",
    [["--property", "parse.key=true"], ["--property", "parse.key=true", "--key-separator", ":"]],
)
def test_a_line_without_the_key_separator_is_an_error_as_in_kafka(
    path: Path, words: list[str]
) -> None:
    separator = ":" if ":" in words else "\t"
    done = run(path, "produce", "orders", *words, stdin=f"a{separator}b\nno key\nc{separator}d\n")
    assert done.exit_code == 3
    assert "error: INVALID_RECORD: line 2: no key separator" in done.stderr
    assert run(path, "consume", "orders", "--last", "1").stdout == "b\n"
    done = run(path, "produce", "orders", *words, "--transactional-id", "x", stdin="no key\n")
    assert (done.exit_code, "no line is appended" in done.stderr) == (1, True)


def test_a_header_without_a_value_is_null(path: Path) -> None:
    with eosdb.connect(path) as db:
        headers = [("absent", None), ("empty", b""), ("text", b"null")]
        db.producer().send("orders", "v", headers=headers)
    for form in ("json", "jsonl", "csv", "table"):
        words = ["consume", "orders", "--last", "1", "--format", form]
        shown = run(path, *words).stdout.replace('""', '"').replace('\\"', '"')
        assert '[["absent", null], ["empty", "' in shown
        assert '["text", "null"]]' in shown


@pytest.mark.parametrize(
    ("number", "is_taken"),
    [("2026", False), ("20261121", False), ("1763726400", False), ("1763726400000000", False),
     ("202611211200", False), ("1763726400000", True), ("0", True), ("2026-11-21", True)],
)  # fmt: skip
def test_a_time_that_is_a_year_a_day_or_seconds_is_not_taken_for_1970(
    path: Path, number: str, is_taken: bool
) -> None:
    reset = ["groups", "reset-offsets", "g", "--topic", "orders", "--to-datetime", number]
    for words in (reset, ["timeline", "orders", "--since", number]):
        done = run(path, *words)
        assert done.exit_code == (0 if is_taken else 2), done.output
        assert is_taken or "as milliseconds since 1970 is" in done.output


def test_produce_refuses_options_that_contradict_each_other(path: Path) -> None:
    for words in (["--fixed-key", "a", "--key-separator", ":"], ["--property", "parse.kye=true"]):
        assert run(path, "produce", "orders", *words).exit_code == 2


def test_json_lines_and_times_for_people_and_programs(path: Path) -> None:
    words = ["consume", "orders", "--last", "12", "--format"]
    first = run(path, *words, "jsonl").stdout.splitlines()[0]
    assert json.loads(first)["timestamp"] == 1_700_000_000_001
    assert "2023-11-14T22:13:20.001Z" in run(path, *words, "table").stdout
    assert run(path, "sql", "SELECT 1 AS a UNION SELECT 2", "--format", "jsonl").stdout == (
        '{"a": 1}\n{"a": 2}\n'
    )


def test_a_file_is_written_whole_or_not_at_all(path: Path) -> None:
    target = path.parent / "out.json"
    done = run(path, "sql", "SELECT 1 AS a", "--format", "jsonl", "-o", str(target))
    assert (done.exit_code, done.stdout, target.read_text()) == (0, "", '{"a": 1}\n')
    query = "SELECT abs(-9223372036854775807 - (column1 = 200)) AS a FROM (VALUES {})"
    failing = query.format(", ".join(f"({number})" for number in range(1, 201)))
    assert run(path, "sql", failing, "--format", "jsonl", "-o", str(target)).exit_code == 1
    assert target.read_text() == '{"a": 1}\n'
    assert [found.name for found in path.parent.glob("out*")] == ["out.json"]
    words = ["consume", "orders", "--group", "g", "-o", str(target)]
    assert run(path, *words).exit_code == 2
