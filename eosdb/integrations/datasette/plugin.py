"""A plugin of Datasette 0.65, which finds it where eosdb is installed beside it: `datasette shop.db` shows
what `eosdb datasette-metadata` prints, unasked.

It is more than comfort: without the queries that stand in for them, Datasette answers 500 for views with
BLOBs (its issue 2601).
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from pluggy import HookimplMarker

from eosdb.integrations.datasette.metadata import of_database
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import JsonView

hookimpl: Final = HookimplMarker("datasette")
_FOUND: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()
"""The metadata of the eosdb files that each Datasette has open, by their names."""


@hookimpl
async def startup(datasette: Any) -> None:
    """Look which files are eosdb's."""
    _FOUND[datasette] = {
        name: of_database(await _typed_views(database))
        for name, database in datasette.databases.items()
        if await database.table_exists("eosdb_json_views")
    }


@hookimpl
def get_metadata(datasette: Any) -> dict[str, Any]:
    """Datasette lays its user's own metadata over it, in place: the same at every call."""
    return {"databases": _FOUND.get(datasette, {})}


async def _typed_views(database: Any) -> list[JsonView]:
    found = await database.execute("SELECT name, topic, columns FROM eosdb_json_views")
    return _views_of(found.rows)


@reads("eosdb_json_views")
def _views_of(rows: Any) -> list[JsonView]:
    return [
        JsonView(name, topic, {column["name"]: column["type"] for column in parsed(columns)})
        for name, topic, columns in rows
    ]
