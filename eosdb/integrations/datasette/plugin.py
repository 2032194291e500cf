"""A plugin that Datasette 0.65 loads if eosdb is installed in the same environment: `datasette shop.db`
then uses the metadata of `eosdb.integrations.datasette.metadata`.

The plugin is also a workaround: without the metadata's queries, Datasette answers 500 for views with BLOBs
(its issue 2601).
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from pluggy import HookimplMarker

from eosdb.integrations.datasette.metadata import of_database
from eosdb.model.damage import parsed, reads
from eosdb.model.reports import JsonView

hookimpl: Final = HookimplMarker("datasette")
_TYPED_VIEWS: Final = "SELECT name, topic, columns FROM eosdb_json_views"
_METADATA: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()
"""The metadata of the eosdb files that each Datasette has open, by their names."""


@hookimpl
async def startup(datasette: Any) -> None:
    _METADATA[datasette] = {
        name: of_database(_views_of((await database.execute(_TYPED_VIEWS)).rows))
        for name, database in datasette.databases.items()
        if await database.table_exists("eosdb_json_views")
    }


@hookimpl
def get_metadata(datasette: Any) -> dict[str, Any]:
    """Return the same object at every call: Datasette merges the user's own metadata into it, in place."""
    return {"databases": _METADATA.get(datasette, {})}


@reads("eosdb_json_views")
def _views_of(rows: Any) -> list[JsonView]:
    return [
        JsonView(name, topic, {column["name"]: column["type"] for column in parsed(columns)})
        for name, topic, columns in rows
    ]
