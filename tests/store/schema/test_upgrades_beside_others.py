"""An upgrade has the file for itself: who has it open with the earlier schema would go on with that."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.store.file.connection import connect as opened
from eosdb.store.schema import migrate
from eosdb.store.schema.newest import SCHEMA_VERSION
from tests.readers import dump_state
from tests.store.schema.schema_files import schema_file
from tests.store.schema.test_schema import UPGRADED, Old, old

pytestmark = pytest.mark.process

__all__ = ["old"]
AT_ONCE = "{'config': eosdb.BrokerConfig(lock_timeout_ms=1)}"
HOLD = """
import sqlite3, sys
import eosdb
{opened}
print("open", flush=True)
sys.stdin.readline()
"""
HOLDERS = {
    "a writer": "db = eosdb.connect(sys.argv[1])",
    "a reader": "db = eosdb.connect(sys.argv[1], read_only=True); db.query('SELECT 1 FROM topics')",
    "another program": "db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM topics')",
}


def hold(path: Path, how: str) -> subprocess.Popen[str]:
    """A process that has the file open until it is told something."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(opened=HOLDERS[how]), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


@pytest.mark.parametrize("how", HOLDERS)
def test_it_is_refused_while_somebody_has_the_file_open(old: Old, how: str) -> None:
    with hold(old.path, how) as holder:
        assert old.upgrade(AT_ONCE) == (0, "DatabaseLockedError", "")
        old.check_unchanged()
        holder.communicate("end")
    assert old.upgrade() == (0, UPGRADED, "")


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_file_of_every_released_schema_names_who_has_it_open(
    tmp_path: Path, version: int
) -> None:
    path = Path(shutil.copy(schema_file(version), tmp_path / "old.db"))
    with hold(path, "another program") as holder:
        before = dump_state(path)
        with pytest.raises(eosdb.DatabaseLockedError) as raised:
            eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=1))
        assert re.search(
            rf"has schema {version} and is open in process {holder.pid} \(.*nothing was changed",
            str(raised.value),
        )
        assert "\n" not in str(raised.value)
        assert dump_state(path) == before
        holder.communicate("end")
    with eosdb.connect(path) as db:
        assert db.verify().ok


def test_who_had_no_connection_while_it_was_upgraded_is_told(old: Old) -> None:
    """As around a fork, when a process closes all of them; it may be long before it opens one again."""
    with eosdb.connect(old.path) as db:
        assert db._store.pause(5)
        assert old.upgrade() == (0, UPGRADED, "")
        db._store.go_on()
        for ask in (
            lambda: db.admin.create_topic("new"),
            lambda: db.begin().__enter__(),
            db.info,
            lambda: db.producer().send("orders", b"v").result(),
        ):
            with pytest.raises(eosdb.SchemaTooNewError, match="nothing was written"):
                ask()
        after = dump_state(old.path)
    assert old.upgrade() == (0, UPGRADED, "")
    assert dump_state(old.path) == after, "nor was anything written by its closing"


def test_a_program_that_is_just_closing_the_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_ALONE_WITHIN_MS", 600_000)
    path = Path(shutil.copy(schema_file(SCHEMA_VERSION - 1), tmp_path / "old.db"))
    is_told = False

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        """The holder is told to end when the upgrade begins, which it finds open or just closed."""
        nonlocal is_told
        if not is_told:
            is_told = True
            assert holder.stdin is not None
            holder.stdin.write("end\n")
            holder.stdin.flush()
        return opened(*args, **options)

    with hold(path, "another program") as holder:
        monkeypatch.setattr(migrate, "connect", connect)
        with eosdb.connect(path, config=eosdb.BrokerConfig(lock_timeout_ms=600_000)) as db:
            assert db.verify().ok
