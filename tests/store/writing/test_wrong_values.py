"""The assertions of units: each is seen to fail, by a value that eosdb's own code never passes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from eosdb.store.file.locks import OwnerLocks
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from eosdb.store.writing.insertion import Insertion
from eosdb.store.writing.table import Table
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import Unit
from eosdb.store.writing.writer import Writer

NOTHING: Any = None
CASES: dict[str, Callable[[], object]] = {
    "a round of no requests": lambda: Writer._run(NOTHING, [], sync=False, careful=False),
    "a write of negative bytes": lambda: Writer.wrote(NOTHING, -1),
    "a commit of no request": lambda: Timings("f", -1).committed(0, sync=False),
    "a turn with others": lambda: GroupCommit(NOTHING).take(UnitRequest(NOTHING, sync=False)),
    "a column twice": lambda: Table("t", "a a", "a"),
    "a key that is no column": lambda: Table("t", "a", "b"),
    "a fixed column that is none": lambda: Table("t", "a", "a", fixed="b"),
    "a column inserted twice": lambda: Insertion.plain("t", ("a", "a")),
    "a lock below 0": lambda: OwnerLocks.hold(NOTHING, -1),
    "no lock": lambda: OwnerLocks.hold(NOTHING, 1, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()


def test_a_unit_that_defers_its_writes_keeps_one_row_for_a_key() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        unit, update = Unit(connection, NOTHING), Statement("UPDATE t SET a = ?")
        unit.careful = False
        with pytest.raises(AssertionError), unit.savepoint():
            pass
        unit.save("t", 1, update, list, "a")
        with pytest.raises(AssertionError):
            unit.save("t", 1, update, tuple, "b")
        with pytest.raises(AssertionError):
            unit.select(Insertion.plain("t", ("a",)), "SELECT a FROM t", (), bool)
