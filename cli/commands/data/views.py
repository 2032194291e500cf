"""`eosdb views`: typed views over the JSON values of a topic."""

from __future__ import annotations

import click

from eosdb.cli import output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import InvalidRequestError


@click.group(cls=FileGroup)
def views() -> None:
    """Create, list and drop typed views over JSON values."""


def _fields(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in given:
        field, colon, type_name = text.partition(":")
        if not field or (colon and not type_name):
            raise click.BadParameter(
                f"got {text!r}, expected FIELD or FIELD:TYPE such as price:REAL"
            )
        if field in columns:
            raise click.BadParameter(f"field {field} is given twice")
        columns[field] = type_name or "TEXT"
    return columns


@views.command()
@click.argument("topic")
@click.option(
    "--json", "columns", multiple=True, required=True, callback=_fields, metavar="FIELD[:TYPE]",
    help="Field of the values, or a path such as customer.name, and its type: TEXT (the default), "
    "INTEGER, REAL, BOOLEAN or JSON (repeatable).",
)  # fmt: skip
@click.option(
    "--name",
    help="Name of the view (default: that of the topic, with _ for . and -).",
)
def create(session: Session, topic: str, columns: dict[str, str], name: str | None) -> None:
    """Create a view over the committed records of TOPIC, whose values are JSON: a column for each FIELD,
    then _partition, _offset, _timestamp and _key. A field of another type is NULL.

    \b
    Example:
      eosdb views create shop.db flights --json carrier --json dep_delay:INTEGER
      eosdb sql shop.db "SELECT carrier, avg(dep_delay) FROM flights GROUP BY carrier"
    """
    chosen = name or topic.replace(".", "_").replace("-", "_")
    with session.open() as db:
        db.admin.create_view(chosen, topic, columns)
    output.done(f"created view {chosen} over topic {topic}")


@views.command(name="list")
@output.format_option
def list_(session: Session) -> None:
    """List the typed views, their topics and columns.

    \b
    Example:
      eosdb views list shop.db
    """
    with session.open(read_only=True) as db:
        typed = db.admin.list_views()
    output.listing(
        ("View", "Topic", "Columns"),
        typed,
        view="name",
        columns=lambda it: ", ".join(f"{name} {type_}" for name, type_ in it.columns.items()),
    )


@views.command()
@click.argument("name")
@click.option("--if-exists", is_flag=True, help="Do nothing if the view does not exist.")
def drop(session: Session, name: str, if_exists: bool) -> None:
    """Drop a typed view. The topic and its records are kept.

    \b
    Example:
      eosdb views drop shop.db flights
    """
    with session.open() as db:
        try:
            db.admin.drop_view(name)
        except InvalidRequestError:
            if not if_exists:
                raise
            output.done(f"there is no view {name}")
            return
    output.done(f"dropped view {name}")
