"""`-o PATH` writes a whole file, and leaves what is no file in its place."""

from __future__ import annotations

import os
import stat
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
