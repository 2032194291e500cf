"""The connections that read are used again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb.store import readers
from eosdb.store.file import connection


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
