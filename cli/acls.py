"""`eosdb acls`: who may do what (kafka-acls.sh)."""

from __future__ import annotations

import click

from eosdb import Acl
from eosdb.errors import InvalidRequestError

from . import output
from .session import Session, pass_session

_OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write",
)  # fmt: skip
_RESOURCES = ("topic", "group", "transactional_id", "cluster")


@click.group()
def acls() -> None:
    """Access control: add, list and remove rows. Without any row everything is allowed."""


@acls.command()
@click.option("--principal", required=True, help="Who, as TYPE:NAME; User:* is everybody.")
@click.option(
    "--operation", "operations", multiple=True, required=True, type=click.Choice(_OPERATIONS),
    help="What; may be repeated.",
)  # fmt: skip
@click.option("--resource-type", required=True, type=click.Choice(_RESOURCES))
@click.option("--resource-name", default=None, help="Which; * is any. The cluster needs none.")
@click.option("--prefixed", is_flag=True, help="Every resource whose name begins so.")
@click.option("--deny", is_flag=True, help="Forbid it; a denial wins over what allows.")
@pass_session
def add(
    session: Session,
    principal: str,
    operations: tuple[str, ...],
    resource_type: str,
    resource_name: str | None,
    prefixed: bool,
    deny: bool,
) -> None:
    """Add rows. From the first on, what no row allows is refused; the command line is User:ANONYMOUS
    unless --principal is given to `eosdb`.

    \b
    Example:
      eosdb acls add --principal User:alice --operation write --resource-type topic --resource-name orders
    """
    if resource_name is None:
        if resource_type != "cluster":
            raise click.UsageError("--resource-name: name the resource, or * for any")
        resource_name = "kafka-cluster"
    rows = [
        Acl(
            principal,
            operation,
            resource_type,
            resource_name,
            "prefixed" if prefixed else "literal",
            "deny" if deny else "allow",
        )
        for operation in operations
    ]
    with session.open() as db:
        db.admin.create_acls(rows)
    click.echo(f"added {len(rows)} rows for {principal}")


@acls.command(name="list")
@click.option("--principal", help="Only of this one.")
@click.option("--resource-type", type=click.Choice(_RESOURCES), help="Only of this type.")
@output.format_option
@pass_session
def list_(
    session: Session, principal: str | None, resource_type: str | None, output_format: str
) -> None:
    """Every row.

    \b
    Example:
      eosdb acls list --principal User:alice
    """
    with session.open(read_only=True) as db:
        found = db.admin.list_acls()
    columns = (
        "Principal", "Operation", "ResourceType", "ResourceName", "PatternType", "Permission",
    )  # fmt: skip
    output.rows(
        columns,
        [
            tuple(acl)
            for acl in found
            if principal in (None, acl.principal) and resource_type in (None, acl.resource_type)
        ],
        output_format,
    )


@acls.command()
@click.option("--principal", help="Rows of this one.")
@click.option("--operation", type=click.Choice(_OPERATIONS), help="Rows about this operation.")
@click.option("--resource-type", type=click.Choice(_RESOURCES), help="Rows about this type.")
@click.option("--resource-name", help="Rows about this name.")
@click.option("--all", "everything", is_flag=True, help="Every row: all is allowed again.")
@pass_session
def remove(
    session: Session,
    principal: str | None,
    operation: str | None,
    resource_type: str | None,
    resource_name: str | None,
    everything: bool,
) -> None:
    """Remove the rows that meet every filter.

    \b
    Example:
      eosdb acls remove --principal User:alice --operation write
    """
    filters = {
        "principal": principal, "operation": operation, "resource_type": resource_type,
        "resource_name": resource_name,
    }  # fmt: skip
    wanted = {name: value for name, value in filters.items() if value is not None}
    if bool(wanted) == everything:
        raise click.UsageError("give filters that say which rows, or --all")
    with session.open() as db:
        removed = db.admin.delete_acls(
            lambda acl: all(getattr(acl, name) == value for name, value in wanted.items())
        )
    if not removed:
        raise InvalidRequestError("no row meets the filters; see `eosdb acls list`")
    click.echo(f"removed {len(removed)} rows")
