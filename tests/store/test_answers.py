"""What `db.query` answers: it prints itself without losing a row, and becomes lists, frames and tables."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.errors import ConfigError, InvalidRequestError

NUMBERS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
    "SELECT i, 'n' || i AS name FROM n"
)


def test_a_small_answer_is_shown_as_a_table(db: eosdb.Database) -> None:
    found = db.query("SELECT 1 AS a, 'x' || char(10) || 'y' AS name UNION ALL SELECT NULL, x'ff'")
    assert repr(found).splitlines() == [
        "a     name",
        "----  -----",
        "1     x\\ny",
        "NULL  X'ff'",
        "(2 rows)",
    ]
    assert found.all() == [(1, "x\ny"), (None, b"\xff")]
    assert str(found).endswith("(0 rows)")


@pytest.mark.parametrize("show", [repr, str, lambda found: found._repr_html_()])
def test_showing_keeps_the_rows_for_whoever_reads(
    db: eosdb.Database, show: Callable[[eosdb.QueryResult], str]
) -> None:
    found = db.query(NUMBERS.format(300))
    assert next(found) == (1, "n1")
    text = show(found)
    assert show(found) == text
    assert "n21" in text
    assert "n22" not in text
    assert "(20 rows shown, there are more)" in text
    assert next(iter(found.rows)) == (2, "n2")
    assert [row.i for row in found] == list(range(3, 301))


def test_a_notebook_gets_a_table_without_markup_of_the_data(db: eosdb.Database) -> None:
    html = db.query("SELECT '<b>' AS \"<i>\"")._repr_html_()
    assert "<th>&lt;i&gt;</th>" in html
    assert "<td>&lt;b&gt;</td>" in html


def test_rows_are_tuples_with_names(db: eosdb.Database) -> None:
    row = db.query('SELECT 7 AS a, 8 AS "count", 9').one()
    a, count, _ = row
    assert (a, count) == (row.a, row["count"]) == (row[0], row[1]) == (7, 8)
    assert tuple(row) == (7, 8, 9)
    assert row.as_dict() == {"a": 7, "count": 8, "9": 9}
    assert pickle.loads(pickle.dumps(row)) == (7, 8, 9)
    with pytest.raises(KeyError, match="b"):
        row["b"]
    with pytest.raises(AttributeError, match=r"no column 'b'; there are a, count, 9"):
        row.b  # noqa: B018


def test_one_row_is_asked_for(db: eosdb.Database) -> None:
    assert db.query(NUMBERS.format(300)).first() == (1, "n1")
    assert db.query("SELECT 1 WHERE 0").first() is None
    with pytest.raises(InvalidRequestError, match="has no row"):
        db.query("SELECT 1 WHERE 0").one()
    with pytest.raises(InvalidRequestError, match="more than one row"):
        db.query(NUMBERS.format(2)).one()


def test_an_answer_that_is_left_early_holds_no_snapshot(tmp_path: Path) -> None:
    def readers() -> Any:
        return db.info()["wal_held_by"]

    with eosdb.connect(tmp_path / "a.db") as db:
        db.admin.create_topic("t")
        for leave in (
            lambda found: found.close(),
            lambda found: found.__exit__(None, None, None),
            lambda found: found.first(),
            lambda found: None,  # It is dropped.
        ):
            found = db.query(NUMBERS.format(300) + ", topics")
            repr(found)
            next(found)
            assert readers()
            leave(found)
            del found
            assert not readers()


def test_frames_and_tables(db: eosdb.Database) -> None:
    frame = db.query(NUMBERS.format(300)).df()
    assert list(frame.columns) == ["i", "name"]
    assert int(frame["i"].sum()) == 45_150
    found = db.query(NUMBERS.format(300))
    repr(found)
    table = found.arrow()
    assert table.column_names == ["i", "name"]
    assert table.num_rows == 300
    assert db.query("SELECT 1 AS a WHERE 0").arrow().column_names == ["a"]
    with pytest.raises(InvalidRequestError, match="column 'a' cannot be an Arrow column"):
        db.query("SELECT 1 AS a UNION ALL SELECT 'x'").arrow()


@pytest.mark.parametrize(("method", "package"), [("df", "pandas"), ("arrow", "pyarrow")])
def test_a_package_that_is_not_installed_is_named(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, method: str, package: str
) -> None:
    def without(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", without)
    found = db.query("SELECT 1 AS a")
    with pytest.raises(
        ConfigError, match=rf"^{method}\(\) needs {package}, .* pip install {package}"
    ):
        getattr(found, method)()
    assert found.all() == [(1,)]
