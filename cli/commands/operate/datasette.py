"""`eosdb datasette-metadata`: descriptions and queries that Datasette shows with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

import click

from eosdb.cli.file_command import FileCommand
from eosdb.cli.session import Session
from eosdb.integrations.datasette.metadata import of_instance


@click.command(name="datasette-metadata", cls=FileCommand)
@click.option(
    "--name",
    help="Name of the database in Datasette (default: FILE without its suffix). With it, FILE is optional.",
)
@click.option(
    "-o", "--output", type=click.File("w", encoding="utf-8", lazy=True), default="-", metavar="PATH",
    help="Output file; by default standard output.",
)  # fmt: skip
def datasette_metadata(session: Session, name: str | None, output: TextIO) -> None:
    """Print metadata for Datasette about FILE: descriptions of its views (typed ones, too) and columns,
    example queries, and which tables to hide. Datasette 0.65 needs no such file beside eosdb.

    \b
    Example:
      eosdb datasette-metadata shop.db -o eosdb-metadata.json
      datasette shop.db -m eosdb-metadata.json
    """
    if session.path is None and name is not None:
        metadata = of_instance(name)
    else:
        with session.open(read_only=True) as db:
            metadata = of_instance(name or Path(session.path or "").stem, db.admin.list_views())
    output.write(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")
