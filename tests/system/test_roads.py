"""The locks of the two roads do not exclude each other, so a file is open on one of them at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

_OPEN = """
import sys, eosdb
try:
    with eosdb.connect(sys.argv[1]) as db:
        print(db.info()["portable"], flush=True)
        sys.stdin.read()
        print(db.verify().ok)
except eosdb.IllegalStateError as error:
    print(error)
"""
PORTABLE, LINUX = "1", "0"


def start(path: Path, road: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _OPEN, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "EOSDB_PORTABLE": road},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(child: subprocess.Popen[str]) -> list[str]:
    output, _ = child.communicate()
    return output.splitlines()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            PORTABLE,
            LINUX,
            "in a program that runs with EOSDB_PORTABLE=1, but this program runs without it",
        ),
        (
            LINUX,
            PORTABLE,
            "in a program that runs without EOSDB_PORTABLE=1, but this program runs with it",
        ),
    ],
)
def test_a_file_that_is_open_on_one_road_is_refused_on_the_other(
    db_path: Path, first: str, second: str, message: str
) -> None:
    opener = start(db_path, first)
    assert opener.stdout is not None
    assert opener.stdout.readline() == f"{first == PORTABLE}\n"
    (refusal,) = said(start(db_path, second))
    assert refusal.startswith(f"{db_path} is open {message}")
    assert said(start(db_path, first)) == [str(first == PORTABLE), "True"], (
        "another on its road is let in"
    )
    assert said(opener) == ["True"]
    assert said(start(db_path, second)) == [str(second == PORTABLE), "True"], (
        "the first has closed it"
    )


def test_one_that_was_killed_is_in_nobodys_way(db_path: Path) -> None:
    opener = start(db_path, PORTABLE)
    assert opener.stdout is not None
    opener.stdout.readline()
    opener.kill()
    opener.communicate()
    assert said(start(db_path, LINUX)) == ["False", "True"]


_ON_A_MAC = """
import fcntl, os, sys
import asyncio, ctypes.util, logging.handlers, multiprocessing, selectors
import shutil, sqlite3, subprocess, tempfile
import sqlalchemy  # It asks Python about the system that this really is.

sys.platform = "darwin"
fcntl.F_FULLFSYNC = 51
for module, names in (
    (fcntl, ("F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW")),
    (os, ("posix_fadvise", "posix_fallocate", "memfd_create", "sched_getaffinity", "pipe2")),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def look(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith(("/proc", "/dev/shm")):
        raise AssertionError(f"{event} {arguments}")


sys.addaudithook(look)
import eosdb

path = sys.argv[1]
with eosdb.connect(path) as db, eosdb.connect(path) as other:
    db.admin.create_topic("t", partitions=2)
    db.append_once("sink", 0, {eosdb.TopicPartition("t", 0): [eosdb.Record(value=b"v")] * 2_000})
    eosdb.process(other, "t", lambda record: None, group_id="g", until_idle_ms=1)
    with other.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE mine (x)")
    db.backup(path + ".copy")
    child = os.fork()
    if child == 0:
        with eosdb.connect(path) as inside:
            os._exit(0 if inside.verify().ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    print(db.info()["portable"], db.verify().ok)
with eosdb.connect(":memory:") as db:
    print(db.verify().ok)
"""


@pytest.mark.real_start
def test_what_a_mac_does_not_have_is_not_asked_for(db_path: Path) -> None:
    """As far as that can be tried on Linux: its calls are gone, and /proc and /dev/shm raise."""
    done = ended(
        [sys.executable, "-W", "ignore", "-c", _ON_A_MAC, str(db_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == ["True True", "True"], done.stderr
