"""The connections that read are used again."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import eosdb
from eosdb.store import readers
from eosdb.store.file import connection
from tests.waiting import eventually


def test_looking_at_the_file_again_opens_no_connection(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []
    make = connection.connect

    def connect(*args: object, **options: object) -> sqlite3.Connection:
        opened.append(make(*args, **options))  # type: ignore[arg-type]
        return opened[-1]

    with eosdb.connect(db_path) as db:
        db.info()
        monkeypatch.setattr(readers, "connect", connect)
        for _ in range(5):
            db.info()
            db.admin.list_topics()
    assert opened == []


def test_a_crowd_of_readers_shares_few_connections(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte each, and opening them all at once takes longer than reading one after another."""
    opened: list[object] = []
    may_open, make = threading.Event(), connection.connect

    def connect(*args: object, **options: object) -> sqlite3.Connection:
        opened.append(args)
        may_open.wait()
        return make(*args, **options)  # type: ignore[arg-type]

    with eosdb.connect(db_path) as db, db._store.read():
        monkeypatch.setattr(readers, "connect", connect)
        monkeypatch.setattr(readers, "_TURN_S", 60)  # However crowded the machine is.
        with ThreadPoolExecutor(30) as pool:
            crowd = [pool.submit(db.broker.topics) for _ in range(30)]
            eventually(lambda: len(db._store._readers._reading) == 31)
            may_open.set()
            for one in crowd:
                one.result()
    assert len(opened) <= 10
