"""The page as Datasette shows it: the metadata is up to date, its queries run, and every page answers.

With Datasette installed (the `dev` extra), it is asked in-process about the file of tests/docs/shop.py.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import make_datasette
from tests.docs import shop
from tests.docs.shop_answers import ANSWERS, INCIDENTAL
from tests.docs.test_sql_page import QUERIES, VIEWS

Get = Callable[[str], Any]
METADATA = make_datasette.METADATA.read_text(encoding="utf-8")
SHOP = json.loads(METADATA.replace("'now'", f"'{shop.NOW}'"))["databases"]["shop"]
TEXTS = ("committed_records", "all_records")
RECORDS = {"committed_records": 13, "all_records": 25}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.make(path)
    return path


def test_the_metadata_is_what_the_page_says() -> None:
    assert make_datasette.document() == METADATA, "run `make docs`"


def test_the_metadata_for_a_file_of_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    make_datasette.main(["flights"])
    assert list(json.loads(capsys.readouterr().out)["databases"]) == ["flights"]


def test_views_are_described_and_inner_tables_hidden(file: Path) -> None:
    shown = {name: table for name, table in SHOP["tables"].items() if "hidden" not in table}
    assert set(shown) == set(VIEWS)
    for name, table in shown.items():
        assert list(table["columns"]) == list(VIEWS[name].columns)
        assert all([table["description"], *table["columns"].values()])
        assert not any("`" in text or "](" in text for text in table["columns"].values())
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    connection.close()
    assert set(SHOP["tables"]) - set(shown) == tables - {"journal"}


def test_the_queries_are_those_of_the_page_and_one_for_each_view_with_blobs() -> None:
    assert list(SHOP["queries"]) == [*TEXTS, *(query.name for query in QUERIES)]


@pytest.mark.parametrize("name", SHOP["queries"])
def test_a_query_runs_in_sqlite(file: Path, name: str) -> None:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    given = {"topic": "orders", "from_offset": "0"}
    assert connection.execute(SHOP["queries"][name]["sql"], given).fetchall()
    connection.close()


@pytest.fixture(scope="module")
def get(file: Path) -> Get:
    """Asks Datasette for an address; JSON as what it says, a page as its text."""
    app = pytest.importorskip("datasette.app")
    datasette = app.Datasette([str(file)], metadata={"databases": {"shop": SHOP}})

    async def answer(path: str) -> Any:
        await datasette.invoke_startup()
        response = await datasette.client.get(path)
        assert response.status_code == 200, (path, response.text)
        return response.json() if ".json" in path else response.text

    return lambda path: asyncio.run(answer(path))


@pytest.mark.filterwarnings("ignore")
def test_datasette_lists_the_queries(get: Get) -> None:
    page = get("/shop")
    for query in QUERIES:
        assert f'<a href="/shop/{query.name}"' in page
        assert query.title in page


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", VIEWS)
def test_datasette_shows_every_view_with_what_its_columns_mean(get: Get, view: str) -> None:
    page = get(f"/shop/{view}")
    for column in VIEWS[view].columns:
        assert f"<dt>{column}</dt>" in page
    assert get(f"/shop/{view}.json?_shape=array")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("view", TEXTS)
def test_datasette_shows_keys_and_values_as_text(get: Get, view: str) -> None:
    everything = get(f"/shop/{view}.json?_shape=array")
    assert len(everything) == RECORDS[view]
    assert everything[0]["value"] == '{"total":99}'
    later = get(f"/shop/{view}.json?_shape=array&topic=orders&from_offset=8")
    assert {row["topic"] for row in later} == {"orders"}
    assert min(row["offset"] for row in later) >= 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_datasette_answers_every_query(get: Get, query: Any) -> None:
    assert query.title in get(f"/shop/{query.name}?topic=orders")
    rows = [
        tuple(row) for row in get(f"/shop/{query.name}.json?_shape=arrays&topic=orders")["rows"]
    ]
    assert [row for row in rows if row[0] not in INCIDENTAL] == ANSWERS[query.title]
