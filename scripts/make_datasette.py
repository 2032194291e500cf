"""Writes eosdb/integrations/datasette/datasette.json, what Datasette shows, from docs/views.md and
docs/sql.md (`make docs`).

The pages are the one source: each `## `view`` of the first, with its table of columns, becomes a
description, each `### title` of the second, with its block of SQL, a query that one can click. A query that
asks about the topic `orders` asks for the topic instead. eosdb's inner tables are hidden, not locked.

Datasette cannot show a view with BLOBs (error 500 for want of a row id, its issue 2601). A query of the
same name comes before the view, so each such view gets one that shows the BLOBs as text.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import eosdb
from eosdb.integrations.datasette.metadata import FILE

ROOT: Final = Path(__file__).parents[1]
VIEWS: Final = ROOT / "docs/views.md"
QUERIES: Final = ROOT / "docs/sql.md"
METADATA: Final = ROOT / "eosdb/integrations/datasette" / FILE
BLOB: Final = "BLOB"
_COLUMNS: Final = re.compile(r"(?m)^\| (`[\w`, ]+`) \| (?:(\w+)(?:, ([\w-]+))? )?\| ([^|]+) \|$")


@dataclass(frozen=True)
class Column:
    """One row of a view's table."""

    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class View:
    """A section about a view: its first paragraph, and its columns in order."""

    text: str
    columns: dict[str, Column]

    @property
    def types(self) -> set[str]:
        return {about.type for about in self.columns.values()}


@dataclass(frozen=True)
class Query:
    """A block of SQL, and what stands between its title and it."""

    title: str
    text: str
    sql: str

    @property
    def name(self) -> str:
        """The title as it stands in an address."""
        return "-".join(re.findall(r"[a-z0-9]+", self.title.lower()))


def views(page: str) -> dict[str, View]:
    """The page's sections about views, by name. A column "as above" is as where it is first described."""
    sections = {}
    first: dict[str, Column] = {}
    for name, body in re.findall(r"(?ms)^## `(\w+)`\n\n(.*?)(?=^## |\Z)", page):
        columns = {}
        for names, *cells in _COLUMNS.findall(body):
            for column in re.findall(r"\w+", names):
                about = first[column] if cells[-1] == "as above" else Column(*cells)
                columns[column] = about
                first.setdefault(column, about)
        sections[name] = View(body.partition("\n\n")[0], columns)
    return sections


def queries(page: str) -> list[Query]:
    """The page's titled queries, in order."""
    return [
        Query(title, text.strip(), sql.strip())
        for title, text, sql in re.findall(
            r"(?ms)^### ([^\n]+)\n((?:(?!^#|^```).)*)^```sql\n(.*?)^```$", page
        )
    ]


def metadata() -> dict[str, Any]:
    """What holds for every file."""
    found = views(VIEWS.read_text(encoding="utf-8"))
    with eosdb.connect(":memory:") as db:
        tables = [name for (name,) in db.query(_TABLES).rows]
    return {
        "tables": {
            **{name: _described(name, view) for name, view in found.items()},
            **{name: {"hidden": True} for name in tables},
        },
        "queries": {
            **{n: _as_text(n, v) for n, v in found.items() if BLOB in v.types},
            **{query.name: _asked(query) for query in queries(QUERIES.read_text(encoding="utf-8"))},
        },
    }


def _asked(query: Query) -> dict[str, str]:
    return {
        "title": query.title,
        **({"description": _plain(query.text)} if query.text else {}),
        "sql": query.sql.replace("'orders'", ":topic"),
    }


def _as_text(name: str, view: View) -> dict[str, str]:
    """The query that stands for a view with BLOBs; an empty topic means all of them."""
    columns = (
        f'CAST("{column}" AS TEXT) AS "{column}"' if about.type == BLOB else f'"{column}"'
        for column, about in view.columns.items()
    )
    described = _described(name, view)
    meanings = "".join(
        f"<dt>{column}</dt><dd>{html.escape(meaning)}</dd>"
        for column, meaning in described["columns"].items()
    )
    return {
        "title": f"{name}, with keys and values as text",
        "description_html": f"<p>{html.escape(described['description'])} An empty topic means all of "
        f'them.</p><dl class="column-descriptions">{meanings}</dl>',
        "sql": "SELECT\n    "
        + ",\n    ".join(columns)
        + f"\nFROM {name}\nWHERE :topic IN ('', topic)\n"
        '    AND "offset" >= CAST(:from_offset AS INTEGER)',
    }


_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"


def _described(name: str, view: View) -> dict[str, Any]:
    columns = {
        column: _plain(
            f"{about.meaning} ({about.unit})" if about.unit in ("ms", "JSON") else about.meaning
        )
        for column, about in view.columns.items()
    }
    newest_first = {"sort_desc": "position"} if name == "journal" else {}
    return {"description": _plain(view.text), "columns": columns, **newest_first}


def _plain(text: str) -> str:
    """Markdown as plain text in one line."""
    return " ".join(re.sub(r"\[([^]]+)\]\([^)]+\)|`([^`]+)`", r"\1\2", text).split())


def document() -> str:
    return json.dumps(metadata(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    METADATA.write_text(document(), encoding="utf-8")
