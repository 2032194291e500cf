"""Every statement of a projection has all its tables in braces, so that it reaches the baseline."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module

import pytest

from eosdb.store.schema import newest
from eosdb.store.schema.newest import Statement, in_baseline, materialized_tables
from eosdb.store.writing.insertion import FoldedInsertion
from eosdb.store.writing.table import Table
from tests.tidy.tree import modules

pytestmark = pytest.mark.slow

ROOMS = ("eosdb.log", "eosdb.coordinator", "eosdb.store.counters")


def statements() -> Iterator[tuple[str, str]]:
    """The live and the baseline's text of every statement that projections have."""
    for name in modules():
        if name.startswith(ROOMS):
            for value in vars(import_module(name)).values():
                for each in value if isinstance(value, tuple) else (value,):
                    if isinstance(each, Table):
                        held = vars(each).values()
                        yield from ((str(s), s.baseline) for s in held if isinstance(s, Statement))
                    elif isinstance(each, Statement):
                        yield str(each), each.baseline
                    elif isinstance(each, FoldedInsertion):
                        yield each.statement(1), each.baseline.statement(1)


def tables_of(statement: str) -> set[str]:
    """The tables that SQLite reads or writes for it."""
    touched: set[str] = set()

    def note(action: int, table: str | None, *_: object) -> int:
        if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE,
                      sqlite3.SQLITE_DELETE):  # fmt: skip
            touched.add(str(table))
        return sqlite3.SQLITE_OK

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for each in newest.statements():
            connection.execute(each)
        connection.set_authorizer(note)
        connection.execute(f"EXPLAIN {statement}", (None,) * statement.count("?"))
    return touched


def test_a_statement_reaches_the_same_tables_in_the_baseline() -> None:
    reached: set[str] = set()
    for live, baseline in statements():
        tables = tables_of(live)
        assert tables_of(baseline) == set(map(in_baseline, tables)), live
        reached |= tables
    assert reached == set(materialized_tables())


def test_a_table_without_braces_is_noticed() -> None:
    statement = Statement("SELECT 1 FROM {partitions} JOIN groups")
    assert tables_of(statement.baseline) == {"eosdb_baseline_partitions", "groups"}
