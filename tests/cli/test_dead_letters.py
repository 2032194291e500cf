"""`eosdb dlq list|show|replay`, as an operator uses it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import sys
from pathlib import Path

import pytest

import eosdb
from tests.cli.conftest import Run
from tests.client.processor.work import bury

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _letters(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("orders")
        for i in range(3):
            db.producer().send("orders", b"%d" % i, key=b"k")
        bury(db, "orders", "orders.dlq", group_id="billing")


def test_list_says_what_failed_where_and_why(run: Run) -> None:
    listed = json.loads(run("dlq", "list", "orders.dlq", "--format", "json").stdout)
    assert [row["ORIGIN"] for row in listed] == ["orders/0/0", "orders/0/1", "orders/0/2"]
    assert listed[1]["MESSAGE"] == "cannot read b'1'"
    assert {(row["GROUP"], row["ATTEMPTS"], row["ERROR"], row["REPLAYED"]) for row in listed} == {
        ("billing", 1, "ValueError", "no")
    }


def test_a_record_without_a_failure_is_no_dead_letter(run: Run, db_path: Path) -> None:
    listed = run("dlq", "list", "orders", "--format", "json")
    assert (listed.exit_code, json.loads(listed.stdout)) == (0, [])
    assert "orders: 3 records without a failure in the headers: no dead letters" in listed.stderr
    with eosdb.connect(db_path) as db:
        db.producer().send("orders.dlq", b"put there by hand")
    mixed = run("dlq", "list", "orders.dlq", "--format", "json")
    assert len(json.loads(mixed.stdout)) == 3
    assert "orders.dlq: 1 record without a failure" in mixed.stderr


def test_without_a_topic_all_dead_letters_are_listed(run: Run, db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("others.dlq")
        (letter, *_) = db.dead_letters("orders.dlq").letters()
        db.producer().send("others.dlq", b"x", headers=letter.record.headers)
    listed = json.loads(run("dlq", "list", "--format", "json").stdout)
    assert [row["ID"] for row in listed][2:] == ["orders.dlq/0/2", "others.dlq/0/0"]
    assert json.loads(run("dlq", "list", "orders", "--format", "json").stdout) == []


def test_show_tells_headers_of_one_name_in_their_order(run: Run, db_path: Path) -> None:
    headers = [("trace", b"1"), ("other", b"x"), ("trace", b"2"), ("trace", b"1")]
    with eosdb.connect(db_path) as db:
        at = db.producer().send("orders.dlq", b"v", headers=headers).result().offset
    (told,) = json.loads(run("dlq", "show", f"orders.dlq/0/{at}", "--format", "json").stdout)
    shown = [(name, value) for name, value in told.items() if name.startswith("header ")]
    assert [value for _, value in shown] == ["1", "x", "2", "1"]
    assert [name for name, _ in shown][::2] == ["header trace", "header trace (2)"]


def test_show_tells_one_in_full(run: Run) -> None:
    shown = run("dlq", "show", "orders.dlq/0/1")
    assert "Traceback" in shown.stdout
    assert "cannot read b'1'" in shown.stdout
    (told,) = json.loads(run("dlq", "show", "orders.dlq/0/1", "--format", "json").stdout)
    assert (told["key"], told["value"], told["replayed"]) == ("k", "1", False)
    assert "in refuse" in told["stacktrace"]


def test_replay_is_idempotent(run: Run) -> None:
    one = run("dlq", "replay", "orders.dlq", "--offset", "1")
    assert one.stdout == "replayed 1 dead letter of orders.dlq; 0 had been replayed before\n"
    rest = run("dlq", "replay", "orders.dlq")
    assert rest.stdout == "replayed 2 dead letters of orders.dlq; 1 had been replayed before\n"
    again = run("dlq", "replay", "orders.dlq")
    assert again.stdout == "replayed 0 dead letters of orders.dlq; 3 had been replayed before\n"
    assert (
        json.loads(run("dlq", "list", "orders.dlq", "--pending", "--format", "json").stdout) == []
    )
    assert len(run("consume", "orders", "--from-beginning").stdout.splitlines()) == 6


def test_a_dry_run_says_how_many_would_go_where_and_sends_nothing(run: Run) -> None:
    said = "would replay 3 dead letters of orders.dlq to orders; nothing has been sent\n"
    assert run("dlq", "replay", "orders.dlq", "--dry-run").stdout == said
    one = run("dlq", "replay", "orders.dlq", "--dry-run", "--offset", "1", "--to-topic", "x").stdout
    assert one == "would replay 1 dead letter of orders.dlq to x; nothing has been sent\n"
    assert "replayed 3 dead letters" in run("dlq", "replay", "orders.dlq", "--yes").stdout
    assert "replay 0 dead" in run("dlq", "replay", "orders.dlq", "--dry-run").stdout


@pytest.mark.process
@pytest.mark.parametrize(("typed", "status"), [("\x03", 130), ("n\n", 1), ("y\n", 0)])
def test_a_terminal_is_asked_before_a_replay(
    run: Run, db_path: Path, typed: str, status: int
) -> None:
    """And Ctrl-C at the question has Ctrl-C's exit status."""
    process, terminal = pty.fork()
    if process == 0:
        words = ["--db", str(db_path), "dlq", "replay", "orders.dlq"]
        os.execv(sys.executable, [sys.executable, "-m", "eosdb.cli", *words])
    told = b""
    while not told.endswith(b"[y/N]: "):
        told += os.read(terminal, 1_000)
    assert b"replay 3 dead letters of orders.dlq to orders?" in told
    os.write(terminal, typed.encode())
    with contextlib.suppress(OSError):  # The terminal ends with the process.
        while True:
            if select.select([terminal], [], [], 1)[0]:
                if not os.read(terminal, 1_000):
                    break
            elif typed == "\x03":  # Python misses one that comes just before it reads.
                os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == status
    os.close(terminal)
    left = json.loads(run("dlq", "list", "orders.dlq", "--pending", "--format", "json").stdout)
    assert len(left) == (0 if status == 0 else 3)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("list", "nope"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("show", "orders.dlq/0/99"), 1, "error:"),
        (("show", "orders.dlq/0/-1"), 2, "OFFSET"),
        (("show", "orders.dlq/x"), 2, "Usage"),
        (("replay", "orders.dlq", "--offset", "99"), 1, "no dead letter"),
        (("replay", "orders.dlq", "--to-topic", "nope"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("replay", "orders"), 1, "no header names its topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_said_in_one_line(
    run: Run, arguments: tuple[str, ...], status: int, told: str
) -> None:
    result = run("dlq", *arguments)
    assert result.exit_code == status
    assert told in result.stderr
