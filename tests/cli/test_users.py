"""`eosdb users`: the password comes by every way but an argument."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.admin.tools import Tools
from eosdb.model.protocol import scram
from tests.cli.conftest import Run
from tests.programs import ended

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def file(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOSDB_USER_PASSWORD", raising=False)
    eosdb.connect(db_path).close()


def passes(path: Path, password: str) -> list[bool]:
    with eosdb.connect(path) as db:
        return [scram.is_password(c, password) for c in Tools(db.admin).list_credentials()]


def test_users_are_added_listed_and_removed(run: Run, db_path: Path) -> None:
    added = run("users", "add", "alice", stdin="secret\nmore\n")
    assert added.output == "added alice for SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert passes(db_path, "secret") == [True, True]
    run("users", "add", "bob", "--mechanism", "SCRAM-SHA-512", stdin="secret")
    listed = run("users", "list").output.splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["alice", "SCRAM-SHA-256", "16384"],
        ["alice", "SCRAM-SHA-512", "16384"],
        ["bob", "SCRAM-SHA-512", "16384"],
    ]
    assert run("users", "remove", "alice").output == "removed alice\n"
    assert passes(db_path, "secret") == [True]


def test_the_environment_may_have_the_password(
    run: Run, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOSDB_USER_PASSWORD", "from outside")
    assert run("users", "add", "alice").exit_code == 0
    assert passes(db_path, "from outside") == [True, True]


@pytest.mark.process
def test_a_terminal_is_asked_twice_and_shows_nothing(db_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "eosdb.cli", "--db", str(db_path), "users", "add", "alice"]
        os.execv(sys.executable, command)
    shown = b""
    for prompt in (b"Password: ", b"Repeat for confirmation: "):
        while not shown.endswith(prompt):
            shown += os.read(terminal, 1)
        os.write(terminal, b"typed\n")
    try:
        while part := os.read(terminal, 1000):
            shown += part
    except OSError:  # The other side has been closed.
        pass
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0, shown
    assert b"typed" not in shown
    assert passes(db_path, "typed") == [True, True]


def test_no_password_is_no_user(run: Run, db_path: Path) -> None:
    for stdin in ("", "\n"):
        refused = run("users", "add", "alice", stdin=stdin)
        assert refused.exit_code == 1
        assert refused.stderr.startswith("error: ")
    assert passes(db_path, "") == []


@pytest.mark.process
def test_it_is_no_argument(db_path: Path) -> None:
    done = ended(
        [sys.executable, "-m", "eosdb.cli", "users", "add", "alice", "--password", "secret"]
    )
    assert done.returncode == 2
