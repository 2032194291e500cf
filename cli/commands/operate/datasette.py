"""`eosdb datasette-metadata`: what Datasette shows beside a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

import click

from eosdb.cli.session import Session, pass_session
from eosdb.integrations.datasette.metadata import of_instance


@click.command(name="datasette-metadata")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--name",
    help="Name of the database in Datasette; by default that of FILE without its ending. With a name, "
    "FILE may be left out.",
)
@click.option(
    "--out",
    type=click.File("w", encoding="utf-8", lazy=True),
    default="-",
    metavar="FILE",
    help="Output file; by default standard output.",
)
@pass_session
def datasette_metadata(session: Session, file: str | None, name: str | None, out: TextIO) -> None:
    """Print metadata for Datasette about FILE. FILE (or that of --db) gets a description of every view and
    column, its typed views among them, queries to click, and its inner tables hidden.
    Where eosdb is installed beside Datasette, Datasette 0.65 finds all this without a file.

    \b
    Example:
      eosdb datasette-metadata shop.db --out eosdb-metadata.json
      datasette shop.db -m eosdb-metadata.json
    """
    if file is not None:
        session = session.at(file)
    if session.path is None and name is not None:
        metadata = of_instance(name)
    else:
        with session.open(read_only=True) as db:
            metadata = of_instance(name or Path(session.path or "").stem, db.admin.list_views())
    out.write(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")
