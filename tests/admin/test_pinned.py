"""The bound of a range that another program reads: a number, or an error."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from eosdb.admin.consistent_cut import first_offset

NAMES = ("orders", "it's", "x') OR 1=1 --", "'")


@pytest.fixture
def file() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE eosdb_file (file_id)")
        connection.execute("CREATE TABLE topics (topic, topic_id)")
        connection.execute("INSERT INTO eosdb_file VALUES ('me')")
        connection.executemany(
            "INSERT INTO topics VALUES (?, ?)", zip(NAMES, range(4), strict=True)
        )
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name_whatever_it_is_made_of(file: sqlite3.Connection, name: str) -> None:
    number = NAMES.index(name)
    assert file.execute(f"SELECT {first_offset(7, 'me', name, number)}").fetchone() == (7,)
    for gone in (first_offset(7, "another", name, number), first_offset(7, "me", name, 9)):
        with pytest.raises(sqlite3.OperationalError, match="since this was planned"):
            file.execute(f"SELECT {gone}").fetchone()
