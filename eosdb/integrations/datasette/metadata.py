"""Metadata for Datasette: descriptions of views and columns, canned queries, and hidden internal tables.

datasette.json is generated from docs/views.md and docs/sql.md (`make docs`) and part of the package. This
module adds the database name that Datasette uses, and the file's typed views. Run as a module with FILE
[NAME], it prints the metadata for a Datasette without the plugin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from eosdb.database import connect
from eosdb.model.damage import parsed
from eosdb.model.reports import JsonView

FILE: Final = "datasette.json"
_COORDINATES: Final = {
    "_partition": "number of the partition, from 0",
    "_offset": "where the record lies",
    "_timestamp": "when the producer made the record, or when it was appended (ms)",
    "_key": "the key; X'…' when it is not UTF-8; NULL: none",
}


def of_database(views: Iterable[JsonView] = ()) -> dict[str, Any]:
    metadata: dict[str, Any] = parsed(
        files("eosdb.integrations.datasette").joinpath(FILE).read_text(encoding="utf-8")
    )
    metadata["tables"] |= {view.name: _typed(view) for view in views}
    return metadata


def of_instance(name: str, views: Iterable[JsonView] = ()) -> dict[str, Any]:
    """Return complete metadata for a file. `name` is its name in Datasette: the file name without
    suffix."""
    return {
        "title": f"{name}: an eosdb file",
        "description": "Kafka's exactly-once machinery in one SQLite file: views, and the journal.",
        "databases": {name: of_database(views)},
    }


def _typed(view: JsonView) -> dict[str, Any]:
    fields = {name: f"a field of the value, as {type_}" for name, type_ in view.columns.items()}
    return {
        "description": f"The committed JSON values of topic {view.topic}, a column for each field.",
        "columns": fields | _COORDINATES,
    }


def main(path: str, name: str | None = None) -> None:
    with connect(path, read_only=True) as db:
        metadata = of_instance(name or Path(path).stem, db.admin.list_views())
    json.dump(metadata, sys.stdout, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    main(*sys.argv[1:3])
