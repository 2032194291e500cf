"""Copies of prepared files that keep their open transactions and members."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from eosdb.store.schema import file_id


def copied_as_new(prepared: Path, path: Path) -> None:
    """Copy a file as one that has no place yet, so that its first writer begins no new life."""
    shutil.copyfile(prepared, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        file_id.settle(connection, None)
