"""A plugin for Datasette 0.65, which loads it if eosdb is installed in the same environment: `datasette
shop.db` then uses the metadata of `eosdb.integrations.datasette.metadata`.

The plugin is also a workaround: without the metadata's queries in their place, Datasette answers 500 for
views with BLOBs (its issue 2601).
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from pluggy import HookimplMarker

from eosdb.integrations.datasette.metadata import of_database
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import JsonView

hookimpl: Final = HookimplMarker("datasette")
_METADATA: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()
"""The metadata of the eosdb files that each Datasette has open, by their names."""


@hookimpl
async def startup(datasette: Any) -> None:
    _METADATA[datasette] = {
        name: of_database(await _typed_views(database))
        for name, database in datasette.databases.items()
        if await database.table_exists("eosdb_json_views")
    }


@hookimpl
def get_metadata(datasette: Any) -> dict[str, Any]:
    """Return the same object at every call: Datasette merges the user's own metadata into it, in place."""
    return {"databases": _METADATA.get(datasette, {})}


async def _typed_views(database: Any) -> list[JsonView]:
    result = await database.execute("SELECT name, topic, columns FROM eosdb_json_views")
    return _views_of(result.rows)


@reads("eosdb_json_views")
def _views_of(rows: Any) -> list[JsonView]:
    return [
        JsonView(name, topic, {column["name"]: column["type"] for column in parsed(columns)})
        for name, topic, columns in rows
    ]
