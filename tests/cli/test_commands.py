"""Every command: what it prints, in which form, and its exit status."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import eosdb
from eosdb.cli import output
from tests.cli.conftest import MAIN
from tests.programs import ended

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def shop(run: Run) -> Run:
    """A file with a topic and three records."""
    assert run("init").exit_code == 0
    assert run("topics", "create", "orders", "--partitions", "2").exit_code == 0
    lines = "k1:hello\nk2:world\nno key\n"
    assert run("produce", "orders", "--key-separator", ":", stdin=lines).exit_code == 0
    return run


def test_init_makes_the_file_and_may_be_repeated(run: Run, db_path: Path) -> None:
    assert run("init").exit_code == 0
    assert run("init").exit_code == 0
    assert db_path.exists()


def test_other_commands_never_make_a_file(run: Run, db_path: Path) -> None:
    result = run("topics", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: DatabaseNotFoundError:")
    assert "eosdb init" in result.stderr
    assert not db_path.exists()


def test_the_file_may_be_named_by_the_environment(db_path: Path) -> None:
    assert CliRunner().invoke(MAIN, ["init"], env={"EOSDB_DB": str(db_path)}).exit_code == 0
    missing = CliRunner().invoke(MAIN, ["info"], env={"EOSDB_DB": ""})
    assert missing.exit_code == 2
    assert "--db PATH" in missing.stderr


def test_what_was_produced_is_consumed(shop: Run) -> None:
    result = shop("consume", "orders", "--from-beginning")
    assert sorted(result.stdout.splitlines()) == ["hello", "no key", "world"]
    assert shop("consume", "orders").stdout == ""


def test_a_group_goes_on_where_it_stopped(shop: Run) -> None:
    first = shop("consume", "orders", "--from-beginning", "--group", "g", "--max-records", "2")
    second = shop("consume", "orders", "--from-beginning", "--group", "g")
    assert len(first.stdout.splitlines()) == 2
    assert len(second.stdout.splitlines()) == 1
    assert shop("consume", "orders", "--group", "g").stdout == ""


def test_records_as_json_have_every_field(shop: Run) -> None:
    rows = json.loads(shop("consume", "orders", "--from-beginning", "--format", "json").stdout)
    assert list(rows[0]) == list(eosdb.ConsumerRecord._fields)
    found = {(row["key"], row["value"]) for row in rows}
    assert found == {("k1", "hello"), ("k2", "world"), (None, "no key")}


def test_all_lines_of_a_transaction_or_none(shop: Run) -> None:
    result = shop("produce", "orders", "--transactional-id", "cli", stdin="a\nb\n")
    assert result.exit_code == 0
    listed = json.loads(shop("transactions", "list", "--format", "json").stdout)
    assert listed == [
        {
            "TransactionalId": "cli",
            "Coordinator": 42,
            "ProducerId": listed[0]["ProducerId"],
            "TransactionState": "CompleteCommit",
        }
    ]


@pytest.mark.parametrize("arguments", [
    ("topics", "list"), ("topics", "describe"), ("transactions", "list"), ("info",),
    ("housekeeping",), ("sql", "SELECT topic, partition FROM partition_offsets"),
], ids=" ".join)  # fmt: skip
def test_listings_come_in_three_forms(shop: Run, arguments: tuple[str, ...]) -> None:
    rows = json.loads(shop(*arguments, "--format", "json").stdout)
    assert isinstance(rows, list)
    table = list(csv.DictReader(io.StringIO(shop(*arguments, "--format", "csv").stdout)))
    assert len(table) == len(rows)
    plain = shop(*arguments)
    assert plain.exit_code == 0
    assert "\x1b" not in plain.stdout


def test_an_empty_listing_is_an_empty_array(run: Run) -> None:
    run("init")
    assert json.loads(run("topics", "list", "--format", "json").stdout) == []


def test_a_setting_without_effect_is_said_to_have_none(shop: Run) -> None:
    said = "topic orders: segment.ms: kept, without effect in eosdb\n"
    change = ("topics", "alter", "orders", "--config", "segment.ms=5", "--config", "retention.ms=7")
    assert shop(*change).stderr == said
    assert shop("topics", "describe", "orders").stderr == said
    (described, *_) = json.loads(shop("topics", "describe", "orders", "--format", "json").stdout)
    assert (described["Configs"], described["WithoutEffect"]) == ("retention.ms=7", "segment.ms=5")
    assert shop("topics", "alter", "orders", "--delete-config", "segment.ms").stderr == ""


def test_topics_are_changed_and_deleted(shop: Run) -> None:
    assert (
        shop(
            "topics", "alter", "orders", "--partitions", "3", "--config", "retention.ms=5000"
        ).exit_code
        == 0
    )
    rows = json.loads(shop("topics", "describe", "orders", "--format", "json").stdout)
    assert [row["Partition"] for row in rows] == [0, 1, 2]
    assert rows[0]["Configs"] == "retention.ms=5000"
    shop("topics", "alter", "orders", "--delete-config", "retention.ms")
    rows = json.loads(shop("topics", "describe", "orders", "--format", "json").stdout)
    assert rows[0]["Configs"] == ""
    assert shop("topics", "delete", "orders", stdin="n\n").exit_code == 1
    assert shop("topics", "delete", "orders", "--yes").exit_code == 0
    assert json.loads(shop("topics", "list", "--format", "json").stdout) == []


def test_create_if_not_exists(shop: Run) -> None:
    assert shop("topics", "create", "orders").exit_code == 1
    assert shop("topics", "create", "orders", "--if-not-exists").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("topics", "create", "orders"), "TOPIC_ALREADY_EXISTS"),
        (("topics", "create", "a b"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "x", "--partitions", "0"), "INVALID_PARTITIONS"),
        (("topics", "create", "x", "--config", "colour=red"), "INVALID_CONFIG"),
        (("topics", "alter", "orders", "--partitions", "1"), "INVALID_PARTITIONS"),
        (("topics", "describe", "nope"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "delete", "nope", "--yes"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "nope"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("transactions", "describe", "nobody"), "TRANSACTIONAL_ID_NOT_FOUND"),
        (("sql", "SELECT * FROM nothing"), "INVALID_REQUEST"),
        (("sql", "DELETE FROM records"), "INVALID_REQUEST"),
        (("sql", "PRAGMA query_only=OFF; DELETE FROM records"), "INVALID_REQUEST"),
        (("sql", "ATTACH 'other.db' AS other"), "INVALID_REQUEST"),
        (("sql", "no SQL"), "INVALID_REQUEST"),
        (("sql", "/* nothing */"), "INVALID_REQUEST"),
        (("produce", "nope"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("produce", "orders", "--partition", "9"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_refusal_is_one_line_and_status_1(
    shop: Run, arguments: tuple[str, ...], name: str
) -> None:
    result = shop(*arguments, stdin="a line\n")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {name}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    ("topics", "create"), ("consume",), ("nonsense",), ("topics", "alter", "orders"),
    ("topics", "create", "x", "--config", "novalue"), ("ingest", "orders", "-"),
    ("consume", "orders", "--format", "xml"),
    ("consume", "orders", "--follow", "--format", "table"),
    ("produce", "orders", "--key-separator", ""), ("transactions", "list", "--in-state", "Open"),
], ids=" ".join)  # fmt: skip
def test_wrong_usage_is_status_2(shop: Run, arguments: tuple[str, ...]) -> None:
    assert shop(*arguments).exit_code == 2


def test_transactions_are_described_with_kafkas_columns(shop: Run, db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        producer = db.producer(transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v", partition=1)
        producer.flush()
        (row,) = json.loads(shop("transactions", "describe", "open", "--format", "json").stdout)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", "orders-1")


def test_values_that_are_no_text_are_shown_as_hex(shop: Run) -> None:
    shop("produce", "orders", stdin=b"\xff\xfe\n")
    result = shop("sql", "SELECT value FROM committed_records WHERE value = X'FFFE'")
    assert "X'fffe'" in result.stdout


def test_no_value_of_a_row_is_lost_in_json(run: Run) -> None:
    run("init")
    result = run("sql", "SELECT 1 AS a, 2 AS a, 9e999 AS big", "--format", "json")
    assert json.loads(result.stdout) == [{"a": 1, "a_2": 2, "big": "inf"}]
    assert "Infinity" not in result.stdout


def test_a_cell_of_a_table_is_one_line_and_steers_no_terminal(run: Run) -> None:
    run("init")
    result = run("sql", "SELECT 'a' || char(10, 27) || 'b' AS x, 'c' AS y")
    assert result.stdout.splitlines()[1].split() == [r"a\n\x1bb", "c"]


def test_headings_are_text_on_a_terminal_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init")
    monkeypatch.setattr("eosdb.cli.output._plain", output._rich)
    assert "[/]" in run("sql", "SELECT 1 AS '[/]'").stdout


@pytest.mark.process
@pytest.mark.parametrize("form", [(), ("--format", "json")], ids=["lines", "json"])
def test_a_group_that_follows_commits_what_it_printed_whole(
    form: tuple[str, ...], shop: Run, start: Start, db_path: Path
) -> None:
    process = start("consume", "orders", "--group", "g", "--from-beginning", "--follow", *form)
    with eosdb.connect(db_path, read_only=True) as db:
        while process.poll() is None and committed_records(db, "g") < 3:
            pass
    process.send_signal(signal.SIGINT)
    printed, complaint = process.communicate()
    assert (process.returncode, complaint) == (0, "")
    assert len([json.loads(line) if form else line for line in printed.splitlines()]) == 3
    assert shop("consume", "orders", "--group", "g").stdout == ""


def committed_records(db: eosdb.Database, group: str) -> int:
    return sum(stored.offset for stored in db.broker.offset_fetch(group).values())


def test_a_line_that_is_too_long_is_named(shop: Run) -> None:
    result = shop("produce", "orders", stdin="short\n" + "x" * 1_100_000)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: MESSAGE_TOO_LARGE: line 2: ")
    assert result.stderr.endswith("the lines before it are appended (outcome: unknown)\n")
    assert "short" in shop("consume", "orders", "--from-beginning").stdout


def test_the_topic_says_how_long_a_line_may_be(shop: Run) -> None:
    shop("topics", "create", "narrow", "--config", "max.message.bytes=8")
    shop("topics", "create", "wide", "--config", "max.message.bytes=3000000")
    assert shop("produce", "narrow", stdin="123456\n" * 100).exit_code == 0
    assert shop("produce", "wide", stdin="x" * 2_900_000).exit_code == 0


@pytest.mark.process
def test_streams_that_the_caller_closed_are_no_traceback(shop: Run, db_path: Path) -> None:
    command = f"{sys.executable} -m eosdb.cli --db {db_path}"
    for line in (f"{command} topics list >&-", f"{command} produce orders <&-"):
        done = ended(["bash", "-c", line])
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.process
def test_a_reader_that_closes_the_pipe_is_no_error(shop: Run, db_path: Path) -> None:
    shop("produce", "orders", stdin="line\n" * 20_000)
    command = (
        f"{sys.executable} -m eosdb.cli --db {db_path} consume orders --from-beginning | head -1"
    )
    done = ended(["bash", "-c", command])
    assert done.stderr == ""


# -- sql ----------------------------------------------------------------------------------------


def test_sql_lists_the_views_and_what_they_show(shop: Run) -> None:
    shop("views", "create", "orders", "--json", "a:INTEGER", "--name", "mine")
    rows = json.loads(shop("sql", ".views", "--format", "json").stdout)
    found = {row["View"]: row for row in rows}
    assert {"committed_records", "journal", "mine"} <= set(found)
    assert found["mine"]["Columns"] == "a INTEGER"
    assert "read_committed" in found["committed_records"]["Shows"]
    unknown = shop("sql", ".tables")
    assert unknown.exit_code == 1
    assert ".views" in unknown.stderr


def test_sql_reads_its_query_from_standard_input(shop: Run) -> None:
    result = shop("sql", "-", "--format", "csv", stdin="SELECT 1 AS one\n")
    assert result.stdout == "one\n1\n"


def test_sql_asks_many_files_at_once(shop: Run, db_path: Path) -> None:
    query = "SELECT file, count(*) AS n FROM committed_records GROUP BY file"
    files = str(db_path.parent / "*.db")
    result = CliRunner().invoke(MAIN, ["sql", "--files", files, query, "--format", "csv"])
    assert result.stdout == f"file,n\n{db_path},3\n"
    twice = shop("sql", "--files", files, query)
    assert twice.exit_code == 2
    assert "FILE or --files" in twice.stderr
