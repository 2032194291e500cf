"""Whoever may ask a query cannot write with it, open other files, run code, or change the process."""

from __future__ import annotations

import array
import datetime
import decimal
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
from sqlalchemy.exc import OperationalError

import eosdb
from eosdb import InvalidRequestError
from tests.cases import each


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records",
        "WITH x(a) AS (VALUES (1)) UPDATE topics SET topic = 'x'",
        "CREATE TABLE mine (a)",
        "PRAGMA user_version=9",
        "/**/ ATTACH '{folder}/other.db' AS other",
        "PRAGMA journal_mode=DELETE",
        "pragma main . journal_mode (off)",
        "/* a ** b */ -- c\nPRAGMA journal_mode=DELETE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "VACUUM INTO '{folder}/other.db'",
        "SELECT load_extension('libm.so.6')",
        "SELECT writefile('{folder}/other.db', 'x')",
        "SELECT readfile('/etc/passwd')",
        "PRAGMA hard_heap_limit=1000000",
        "EXPLAIN PRAGMA soft_heap_limit=1",
        'SELECT * FROM "pragma_Hard_Heap_Limit"(1000000)',
        "PRAGMA temp_store_directory='/etc'",
        "SELECT fts3_tokenizer('simple')",
        "SELECT \"FTS3_tokenizer\"('simple', x'0000000000000000')",
    ],
)
def test_a_query_only_reads_this_file(db: eosdb.Database, tmp_path: Path, statement: str) -> None:
    db.admin.create_topic("orders")
    before = set(tmp_path.iterdir())
    with pytest.raises(InvalidRequestError):
        db.query(statement.format(folder=tmp_path)).all()
    assert set(tmp_path.iterdir()) == before
    assert db.query("SELECT topic FROM topics").all() == [("orders",)]
    assert db.verify().ok


@pytest.mark.parametrize(
    "statement", ["SELECT a b c FROM topics", "SELEC 1", "SELECT * FROM nowhere"]
)
def test_a_faulty_statement_is_the_users_error(db: eosdb.Database, statement: str) -> None:
    """SQLite reports the first one as SQLITE_SCHEMA before it has read the schema."""
    with pytest.raises(InvalidRequestError, match="SQLite refuses the statement"):
        db.query(statement)


ONE = "SELECT value, typeof(value) FROM (SELECT ? AS value)"
NAMED = "SELECT :n, typeof(:n)"


@pytest.mark.slow
@each(
    ("sql", "parameters", "found"),
    [
        (NAMED, {"n": 5}, (5, "integer")),
        (NAMED, {"n": numpy.int64(5), "more": 1}, (5, "integer")),
        (NAMED.replace(":", "@"), types.MappingProxyType({"n": "x"}), ("x", "text")),
        (ONE, [numpy.int32(5)], (5, "integer")),
        (ONE, [numpy.uint8(5)], (5, "integer")),
        (ONE, [numpy.float32(1.5)], (1.5, "real")),
        (ONE, [numpy.bool_(True)], (1, "integer")),
        (ONE, numpy.array([5]), (5, "integer")),
        (ONE, [numpy.array(5)], (5, "integer")),
        (ONE, [bytearray(b"x")], (b"x", "blob")),
        (ONE, [None], (None, "null")),
        (NAMED, {"m": 5}, "did not supply a value"),
        (ONE, [], "Incorrect number of bindings"),
        (ONE, "5", "expected a collection"),
        (ONE, 5, "expected a collection"),
        (ONE, [numpy.array([5, 6])], "expected a number, text, bytes or None"),
        (ONE, [array.array("q", [5])], "expected a number, text, bytes or None"),
        (ONE, [datetime.datetime(2026, 11, 28)], "expected a number, text, bytes or None"),
        (NAMED, {"n": datetime.date(2026, 11, 28)}, "parameter :n: got"),
        (ONE, [numpy.datetime64("2026-11-28")], "expected a number, text, bytes or None"),
        (ONE, [decimal.Decimal(5)], "expected a number, text, bytes or None"),
        (ONE, [2**63], "too large"),
    ],
)
def test_a_parameter_is_what_it_looks_like_or_is_refused(
    db: eosdb.Database, sql: str, parameters: Any, found: object
) -> None:
    for query in (db.query, eosdb.fleet(db.path).query):
        if isinstance(found, str):
            with pytest.raises(InvalidRequestError, match=found):
                query(sql, parameters).all()
        else:
            assert query(sql, parameters).all() == [found]


@pytest.mark.parametrize("function", ["load_extension('x')", "fts3_tokenizer('simple')"])
def test_a_view_or_trigger_of_the_file_calls_no_function_with_effects(
    db_path: Path, function: str
) -> None:
    """SQLite itself refuses those that may be called directly alone, whatever a connection trusts."""
    with eosdb.connect(db_path) as db, db.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE mine (a)")
        tx.connection.exec_driver_sql(f"CREATE VIEW evil AS SELECT {function} AS x")
        tx.connection.exec_driver_sql(
            f"CREATE TRIGGER told AFTER INSERT ON mine BEGIN SELECT {function}; END"
        )
    with eosdb.connect(db_path) as db:
        with pytest.raises(InvalidRequestError, match="unsafe use of"):
            db.query("SELECT * FROM evil").all()
        with pytest.raises(OperationalError, match="unsafe use of"), db.begin() as tx:
            tx.connection.exec_driver_sql("INSERT INTO mine VALUES (1)")
