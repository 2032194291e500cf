"""The page as Datasette shows it: the metadata is up to date, its queries run, and every page answers.

Datasette is asked in-process about the file of tests/docs/shop.py: with the metadata, and with nothing but
the plugin that it finds.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock
from eosdb.integrations.datasette.metadata import main, of_instance
from scripts import make_datasette
from tests.cases import each
from tests.docs import shop
from tests.docs.shop_answers import ANSWERS, INCIDENTAL
from tests.docs.test_sql_page import QUERIES, VIEWS

pytestmark = pytest.mark.slow

Get = Callable[[str], Any]
METADATA = make_datasette.METADATA.read_text(encoding="utf-8")
SHOP = json.loads(METADATA.replace("'now'", f"'{shop.NOW}'"))
TEXTS = ("committed_records", "committed_texts", "all_records", "scheduled_records")
RECORDS = {"committed_records": 13, "all_records": 25}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.make(path)
    return path


def test_the_metadata_is_what_the_page_says() -> None:
    assert make_datasette.document() == METADATA, "run `make docs`"


def test_a_file_and_its_typed_views_are_described_by_any_name(
    typed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(str(typed), "flights")
    (found,) = json.loads(capsys.readouterr().out)["databases"].items()
    about = found[1]["tables"]["totals"]
    general = json.loads(METADATA)
    assert found == ("flights", general | {"tables": general["tables"] | {"totals": about}})
    assert list(about["columns"]) == ["total", "_partition", "_offset", "_timestamp", "_key"]
    assert "topic bills" in about["description"]
    main(str(typed))
    assert list(json.loads(capsys.readouterr().out)["databases"]) == [typed.stem]


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
    assert set(SHOP["tables"]) - set(shown) == tables


def test_the_queries_are_those_of_the_page_and_one_for_each_view_with_blobs() -> None:
    assert list(SHOP["queries"]) == [*TEXTS, *(query.name for query in QUERIES)]


@each("name", SHOP["queries"])
def test_a_query_runs_in_sqlite(file: Path, name: str) -> None:
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    given = {"topic": "orders", "from_offset": "0"}
    assert connection.execute(SHOP["queries"][name]["sql"], given).fetchall()
    connection.close()


@pytest.fixture(scope="module")
def get(file: Path) -> Get:
    """Asks Datasette for an address; JSON as what it says, a page as its text."""
    return asking(file, metadata={"databases": {"shop": SHOP}})


def asking(*files: Path, **settings: Any) -> Get:
    # To import it takes as long as to collect a thousand tests.
    from datasette.app import Datasette  # type: ignore[import-untyped]

    datasette = Datasette([*map(str, files)], **settings)

    async def answer(path: str) -> Any:
        await datasette.invoke_startup()
        response = await datasette.client.get(path)
        assert response.status_code == 200, (path, response.text)
        return response.json() if ".json" in path else response.text

    return lambda path: asyncio.run(answer(path))


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a typed view, and keys of all sorts."""
    path = tmp_path_factory.mktemp("typed") / "shop.db"
    shop.make(path)
    with eosdb.connect(path, clock=ManualClock(start_ms=shop.at(2, "13:00"))) as db:
        db.admin.create_topic("bills")
        db.admin.create_view("totals", "bills", {"total": "INTEGER"})
        with db.producer() as producer:
            for key in (b"\xff", "ö".encode(), None):
                producer.send("bills", b'{"total": 1}', key=key)
    return path


@pytest.fixture(params=["the plugin", "the metadata"])
def whole(typed: Path, request: pytest.FixtureRequest) -> Iterator[Get]:
    """Asks a Datasette with eosdb beside it that is told nothing, and one with the metadata alone."""
    if request.param == "the plugin":
        yield asking(typed)
        return
    with eosdb.connect(typed, read_only=True) as db:
        metadata = of_instance(typed.stem, db.admin.list_views())
    from datasette.plugins import pm  # type: ignore[import-untyped]

    plugin = pm.unregister(name="eosdb")
    try:
        yield asking(typed, metadata=metadata)
    finally:
        pm.register(plugin, "eosdb")


@pytest.mark.filterwarnings("ignore")
def test_every_view_opens_in_every_form(whole: Get) -> None:
    columns = {name: list(view.columns) for name, view in VIEWS.items()}
    columns["totals"] = ["total", "_partition", "_offset", "_timestamp", "_key"]
    for view, names in columns.items():
        page = whole(f"/shop/{view}")
        assert all(f"<dt>{name}</dt>" in page for name in names)
        rows = whole(f"/shop/{view}.json?_shape=arrays&_size=max")["rows"]
        header, *lines = csv.reader(io.StringIO(whole(f"/shop/{view}.csv?_size=max")))
        assert header == names
        assert len(lines) == len(rows) > 0
        assert {len(line) for line in lines} == {len(names)}
    assert whole("/shop/eosdb_journal/1.json?_shape=array")
    assert "TopicCreated" in whole("/shop/eosdb_journal/1")
    keys = [row["_key"] for row in whole("/shop/totals.json?_shape=array&_size=max")]
    assert keys == ["X'FF'", "ö", None]


@pytest.mark.filterwarnings("ignore")
def test_inner_tables_are_hidden(whole: Get) -> None:
    tables = {table["name"]: table["hidden"] for table in whole("/shop.json")["tables"]}
    assert [name for name, hidden in tables.items() if not hidden] == []


@pytest.mark.filterwarnings("ignore")
def test_the_users_metadata_come_before_the_plugins_and_other_files_are_left_alone(
    typed: Path, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE committed_records (value BLOB)")
    connection.close()
    own = {"databases": {"shop": {"tables": {"totals": {"description": "Mine."}}}}}
    get = asking(typed, tmp_path / "other.db", metadata=own)
    assert "Mine." in get("/shop/totals")
    assert "<dt>_key</dt>" in get("/shop/totals")
    assert "<dt>" not in get("/other/committed_records")
    assert get("/other.json")["queries"] == []


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
@pytest.mark.parametrize("view", RECORDS)
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
