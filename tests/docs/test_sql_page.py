"""docs/views.md describes every column of every view; every query of docs/sql.md gives the right answer.

The queries run as an analyst runs them: by plain sqlite3, read-only, on the file of tests/docs/shop.py.
Where one says 'now', the analyst's now is put in its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from scripts import make_datasette
from tests.cases import each
from tests.docs import shop
from tests.docs.shop_answers import ANSWERS, INCIDENTAL

PAGE = make_datasette.QUERIES.read_text(encoding="utf-8")
VIEWS = make_datasette.views(make_datasette.VIEWS.read_text(encoding="utf-8"))
QUERIES = make_datasette.queries(PAGE)
TYPES = {"INTEGER": "integer", "TEXT": "text", "BLOB": "blob"}


@pytest.fixture(scope="module")
def analyst(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.make(path)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    yield connection
    connection.close()


def test_the_history_is_sound(tmp_path: Path) -> None:
    shop.make(tmp_path / "shop.db")
    with eosdb.connect(tmp_path / "shop.db", read_only=True) as db:
        assert db.verify().ok


def test_the_page_describes_the_views_there_are(db: eosdb.Database) -> None:
    found = {
        name for (name,) in db.query("SELECT name FROM sqlite_master WHERE type = 'view'").rows
    }
    assert set(VIEWS) == found


def test_the_page_describes_the_columns_there_are(db: eosdb.Database) -> None:
    for view in db.views():
        assert tuple(VIEWS[view.name].columns) == view.columns, view.name
        assert VIEWS[view.name].text.startswith(view.text), view.name


@pytest.mark.parametrize("view", VIEWS)
def test_values_have_the_type_on_the_page(analyst: sqlite3.Connection, view: str) -> None:
    for column, described in VIEWS[view].columns.items():
        found = {
            kind for (kind,) in analyst.execute(f'SELECT typeof("{column}") FROM {view} GROUP BY 1')
        }
        allowed = {TYPES[described.type]} | ({"null"} if "NULL" in described.meaning else set())
        assert TYPES[described.type] in found, (column, found)
        assert found <= allowed, (column, found)


def test_every_query_has_a_title_of_its_own_and_an_expected_answer() -> None:
    titles = [query.title for query in QUERIES]
    assert len(titles) == PAGE.count("```sql") == len({query.name for query in QUERIES})
    assert sorted(titles) == sorted(ANSWERS)
    assert all(ANSWERS.values()), "an empty answer proves nothing"


@each("query", QUERIES)
def test_a_query_gives_the_right_answer(analyst: sqlite3.Connection, query: Any) -> None:
    rows = analyst.execute(query.sql.replace("'now'", f"'{shop.NOW}'")).fetchall()
    assert [row for row in rows if row[0] not in INCIDENTAL] == ANSWERS[query.title]
