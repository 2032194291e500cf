"""A program's converter for any type that eosdb's statements read is refused (`eosdb.join`)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb.errors import InvalidRequestError


@pytest.mark.parametrize("kind", ["INT", "INTEGER", "TEXT"])
def test_a_converter_changes_what_would_be_read(db_path: Path, kind: str) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
    sqlite3.register_converter(kind, lambda data: [data])
    try:
        own = sqlite3.connect(db_path, detect_types=sqlite3.PARSE_DECLTYPES)
        with contextlib.closing(own), own, pytest.raises(InvalidRequestError, match="converter"):
            own.execute("BEGIN IMMEDIATE")
            eosdb.join(own).publish("t", "x")
    finally:
        del sqlite3.converters[kind]
