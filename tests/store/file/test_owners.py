"""Who may use the files beside a database: whoever may use the database itself."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import eosdb
from eosdb.store.file.file_system import LOCKS
from tests.programs import ended

pytestmark = pytest.mark.process

NOBODY = 65534
AS_NOBODY = f"""
import os, sys
import eosdb
with eosdb.connect(":memory:") as db:
    db.verify()  # Whatever is imported late may not be readable without privileges.
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
try:
    with eosdb.connect(sys.argv[1]) as db:
        db.admin.create_topic("t")
        print("written")
except eosdb.EosdbError as error:
    print(type(error).__name__, error)
with eosdb.connect(sys.argv[1], read_only=True) as db:
    print(db.is_published)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a service, which is another user than the tests if they run as root."""
    with tempfile.TemporaryDirectory() as name:
        own(Path(name))
        yield Path(name)
        os.chmod(name, 0o777)


def own(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def said_by_the_service(path: Path) -> list[str]:
    command = [sys.executable, "-c", AS_NOBODY, str(path)]
    done = ended(command, check=True)
    return done.stdout.splitlines()


def test_what_root_makes_beside_a_file_belongs_to_the_owner_of_the_file(folder: Path) -> None:
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id)")
    own(path)
    path.chmod(0o640)
    with eosdb.connect(path, adopt="wal") as db:
        db.admin.create_topic("first")
        beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", *LOCKS)]
        stats = [file.stat() for file in (path, *beside)]
        assert len({(status.st_uid, status.st_gid, status.st_mode) for status in stats}) == 1
    assert said_by_the_service(path)[0] == "written"


def test_a_lock_file_that_may_not_be_written_is_named_and_not_the_folder(folder: Path) -> None:
    path = folder / "shop.db"
    eosdb.connect(path).close()
    own(path)
    Path(f"{path}-lock").chmod(0o444)
    told, _ = said_by_the_service(path)
    assert told.startswith(f"ReadOnlyDatabaseError {path}-lock is not writable by this user")
    assert f"--reference={path} {path}-lock" in told


def test_a_file_in_wal_mode_is_no_published_copy_in_a_folder_that_may_not_be_written(
    folder: Path,
) -> None:
    """SQLite can lock nothing there, and such a connection does not know the mode: the header says it."""
    path = folder / "shop.db"
    eosdb.connect(path).close()
    own(path)
    for suffix in LOCKS:
        Path(f"{path}{suffix}").unlink()
    folder.chmod(0o555)
    told, is_published = said_by_the_service(path)
    assert told == (
        f"ReadOnlyDatabaseError the folder of {path} is not writable; open it with read_only=True"
    )
    assert is_published == "False"
