"""`eosdb export`: tables from the command line, once or for as long as it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from tests.cli.conftest import Run
from tests.integrations.lakehouse.tables import LIBRARIES, Table, append, committed
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.forked_with(*LIBRARIES)]


@pytest.fixture(autouse=True)
def path(db_path: Path) -> Path:
    return shop(db_path)


def shop(path: Path) -> Path:
    with eosdb.connect(path) as db:
        db.admin.create_topic("orders")
        append(db, 3)
    return path


def options(table: Table) -> list[str]:
    given = [f"--option={name}={value}" for name, value in table.options.items()]
    return [table.target, "--table-format", table.format, *given]


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_command_adds_what_is_new(tmp_path: Path, path: Path, run: Run, format: str) -> None:
    table = Table(format, tmp_path)
    for expected in (3, 0):
        done = run("export", *options(table), "--topic", "orders")
        assert done.exit_code == 0, done.output
        assert f"{path}: {expected} records in" in done.stdout
    assert len(table.rows()) == 3


def test_many_files_become_one_table(tmp_path: Path, run: Run) -> None:
    for name in ("b.db", "c.db"):
        shop(tmp_path / name)
    table = Table("delta", tmp_path)
    done = run(
        "export", *options(table), *(f"--files={tmp_path}/{name}" for name in ("b.db", "[c].db"))
    )
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2
    assert len(table.rows()) == 6


def test_files_that_cannot_be_read_are_named_and_the_others_exported(
    tmp_path: Path, run: Run
) -> None:
    for name in ("b.db", "c.db"):
        shop(tmp_path / name)
    (tmp_path / "bad.db").write_text("no database")
    table = Table("delta", tmp_path)
    for expected in (3, 0):
        done = run("export", *options(table), "--files", str(tmp_path / "[bc]*.db"))
        assert done.exit_code == 1
        named, error = done.stderr.splitlines()
        assert named.startswith(f"{tmp_path / 'bad.db'} was left out: NotAnEosdbFileError: ")
        assert "1 file left out, as named above" in error
        assert done.stdout.count(f": {expected} records in") == 2
    assert len(table.rows()) == 6


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_topic_that_no_file_has_leaves_nothing_behind(
    tmp_path: Path, path: Path, run: Run, format: str
) -> None:
    for more in ([], ["--files", str(path)]):
        done = run("export", *options(Table(format, tmp_path)), "--topic", "nosuch", *more)
        assert done.exit_code == 1
        assert "no topic nosuch; its topics: orders" in done.stderr
    assert {it.name.partition("-")[0] for it in tmp_path.iterdir()} == {path.name}


@pytest.mark.process
def test_following_goes_on_after_a_kill_and_ends_with_sigterm_and_ctrl_c(
    tmp_path: Path, path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    table = Table("delta", tmp_path)
    with eosdb.connect(path) as db:
        for number, ending in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), 1):
            process = start("export", *options(table), "--follow", "--every", "1")
            for _ in range(2):
                append(db, 1)
                eventually(lambda: table.places() == committed(db))
            process.send_signal(ending)
            process.communicate()
            assert process.returncode == (-ending if ending == signal.SIGKILL else 0)
            assert len(table.rows()) == 3 + 2 * number


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        (["t", "--table-format", "csv"], 2, "csv"),
        (["t", "--topic", "nowhere"], 1, "no topic nowhere; its topics: orders"),
        (["t", "--option", "a"], 2, "expected NAME=VALUE"),
        (["t", "--option", "a=b"], 1, "expected none for Parquet"),
        (["t\udcff"], 1, "UTF-8"),
        ([""], 1, "expected the path"),
        (["t", "--table-format", "iceberg"], 1, "expected a table such as"),
        (["a.b", "--table-format", "iceberg", "--catalog", "nosuch"], 1, "Iceberg says"),
        (["t", "--files", "no-such-*.db"], 1, "no-such-"),
        (["/proc/nowhere"], 1, "cannot be written"),
        (["/proc/nowhere", "--table-format", "delta"], 1, "Delta says"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    tmp_path: Path,
    run: Run,
    line: list[str],
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("export", *line)
    assert done.exit_code == status, done.output
    assert says in done.stderr
    assert status == 2 or len(done.stderr.splitlines()) == 1


def test_without_its_packages_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "eosdb.integrations.lakehouse.delta", raising=False)
    done = run("export", "t", "--table-format", "delta")
    assert done.exit_code == 1
    assert "delta needs the extra 'lakehouse': pip install " in done.stderr
