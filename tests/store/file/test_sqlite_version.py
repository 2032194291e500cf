"""A SQLite that is too old is refused before a file is looked at."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb.errors import IllegalStateError
from eosdb.store.file.connection import check_version


@pytest.mark.parametrize("create", [True, False])
def test_a_sqlite_that_is_too_old_is_refused_in_a_sentence(
    create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(IllegalStateError) as refused:
        eosdb.connect(tmp_path / "x.db", create=create)
    assert str(refused.value) == (
        "eosdb needs SQLite 3.37.0 or newer, and this Python has 3.36.0: "
        "install a newer libsqlite3, or a Python that was built with one"
    )
    assert not list(tmp_path.iterdir())


def test_the_oldest_that_is_supported_is_not_refused() -> None:
    check_version((3, 37, 0))
    check_version((4, 0, 0))
