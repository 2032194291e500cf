"""`-o PATH` writes a whole file, and leaves what is no file in its place."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.errors import StorageError
from tests.cli.conftest import MAIN


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    path, pipe = tmp_path / "shop.db", tmp_path / "pipe"
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = CliRunner().invoke(MAIN, ["topics", "list", str(path), "-o", str(pipe)])
        assert done.exit_code == 0, done.output
        assert b"orders" in os.read(reader, 1_000)
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_copy_is_not_published_in_the_place_of_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        eosdb.connect(tmp_path / "shop.db", durability="off") as db,
        pytest.raises(StorageError, match="is a device or a pipe"),
    ):
        db.publish_copy(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_at_the_name_under_which_it_is_written_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    path = tmp_path / "shop.db"
    eosdb.connect(path).close()
    (tmp_path / f"out.{os.getpid()}.part").symlink_to(precious)
    done = CliRunner().invoke(MAIN, ["topics", "list", str(path), "-o", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    "name",
    [
        "shop.db",
        "shop.db-wal",
        "shop.db-lock",
        "shop.db-journal",
        "other.db",
        "link",
        "link-of-lock",
        "hard",
        "hard-wal",
    ],
)
def test_no_database_and_no_file_beside_one_is_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / "shop.db"
    with (
        eosdb.connect(path, durability="off") as db,
        eosdb.connect(tmp_path / "other.db", durability="off"),
    ):
        db.admin.create_topic("orders")
        (tmp_path / "link").symlink_to("shop.db")
        (tmp_path / "link-of-lock").symlink_to("shop.db-lock")
        os.link(tmp_path / "other.db", tmp_path / "hard")
        os.link(tmp_path / "shop.db-wal", tmp_path / "hard-wal")
        before = {each.name: each.stat().st_ino for each in tmp_path.iterdir()}
        for words in (["topics", "list"], ["sql", "SELECT 1"], ["timeline", "orders"]):
            words = ["--db", str(path), *words, "-o", str(tmp_path / name)]
            done = CliRunner().invoke(MAIN, words)
            assert (done.exit_code, "this is a database" in done.output) == (2, True), done.output
        assert {each.name: each.stat().st_ino for each in tmp_path.iterdir()} == before


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_link_stays_and_the_new_file_has_the_old_ones_mode(tmp_path: Path, mode: int) -> None:
    path, target, link = tmp_path / "shop.db", tmp_path / "folder" / "out", tmp_path / "link"
    eosdb.connect(path).close()
    target.parent.mkdir()
    link.symlink_to(target)
    for _ in range(2):
        assert CliRunner().invoke(MAIN, ["info", str(path), "-o", str(link)]).exit_code == 0
        assert link.is_symlink()
        assert "size_bytes" in target.read_text()
        target.chmod(mode)
    assert CliRunner().invoke(MAIN, ["info", str(path), "-o", str(link)]).exit_code == 0
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert os.listdir(target.parent) == ["out"]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", ">/dev/full", ">&- 2>&-"])
def test_a_last_message_that_nobody_gets_is_no_failure(tmp_path: Path, streams: str) -> None:
    """But for a result that cannot be written."""
    main = f"{sys.executable} -m eosdb.cli --db {tmp_path / 'shop.db'}"
    for words, status in (
        ("init", 0),
        ("topics create orders", 0),
        ("produce orders < /proc/version", 0),
        (f"backup {tmp_path / 'copy.db'}", 0),
        ("topics create orders", 1),
        ("topics list", int(streams == ">/dev/full")),
    ):
        done = subprocess.run(["sh", "-c", f"{main} {words} {streams}"], timeout=120, check=False)
        assert done.returncode == status, words
    with eosdb.connect(tmp_path / "shop.db") as db:
        assert db.broker.offsets(eosdb.TopicPartition("orders", 0)).last_stable_offset == 1
