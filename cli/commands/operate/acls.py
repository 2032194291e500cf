"""`eosdb acls`: access control lists (kafka-acls.sh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from eosdb import Acl
from eosdb.cli import output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import InvalidRequestError

F = TypeVar("F", bound=Callable[..., Any])
_OPERATION = click.Choice([
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write",
])  # fmt: skip
_TYPE = click.Choice(["topic", "group", "transactional_id", "cluster"])


@click.group(cls=FileGroup)
def acls() -> None:
    """Add, list and remove ACLs. While there is no ACL, everything is allowed."""


@acls.command()
@click.option(
    "--principal", required=True, help="Principal as TYPE:NAME; User:* matches every user."
)
@click.option(
    "--operation", "operations", multiple=True, required=True, type=_OPERATION,
    help="Operation to allow or deny (repeatable).",
)  # fmt: skip
@click.option("--resource-type", required=True, type=_TYPE, help="Type of the resource.")
@click.option(
    "--resource-name",
    help="Name of the resource; * matches any. Not needed for the cluster.",
)  # fmt: skip
@click.option("--prefixed", is_flag=True, help="Match every resource whose name has this prefix.")
@click.option("--deny", is_flag=True, help="Deny instead of allow; a denial takes precedence.")
def add(
    session: Session,
    principal: str,
    operations: tuple[str, ...],
    resource_type: str,
    resource_name: str | None,
    prefixed: bool,
    deny: bool,
) -> None:
    """Add ACLs. With the first ACL, every operation that no ACL allows is denied. Commands run as
    User:ANONYMOUS unless `eosdb --run-as` names another principal.

    \b
    Example:
      eosdb acls add shop.db --principal User:alice --operation write --resource-type topic \\
        --resource-name orders
    """
    if resource_name is None:
        if resource_type != "cluster":
            raise click.UsageError(
                "--resource-name is required for this resource type; use * for any"
            )
        resource_name = "kafka-cluster"
    kinds = "prefixed" if prefixed else "literal", "deny" if deny else "allow"
    rows = [Acl(principal, each, resource_type, resource_name, *kinds) for each in operations]
    with session.open() as db:
        db.admin.create_acls(rows)
    output.done(f"added {len(rows)} ACLs for {principal}")


def _filters(function: F) -> F:
    """Add the options that filter ACLs."""
    for option in (
        click.option("--resource-name", help="Only ACLs for this resource name."),
        click.option("--resource-type", type=_TYPE, help="Only ACLs for this resource type."),
        click.option("--operation", type=_OPERATION, help="Only ACLs for this operation."),
        click.option("--principal", help="Only ACLs of this principal."),
    ):
        function = option(function)
    return function


def _fits(acl: Acl, filters: Mapping[str, str | None]) -> bool:
    return all(wanted in (None, getattr(acl, name)) for name, wanted in filters.items())


@acls.command(name="list")
@_filters
@output.format_option
def list_(session: Session, /, **filters: str | None) -> None:
    """List ACLs.

    \b
    Example:
      eosdb acls list shop.db --principal User:alice
    """
    columns = (
        "Principal", "Operation", "ResourceType", "ResourceName", "PatternType", "Permission",
    )  # fmt: skip
    with session.open(read_only=True) as db:
        output.rows(columns, (acl for acl in db.admin.list_acls() if _fits(acl, filters)))


@acls.command()
@_filters
@click.option(
    "--all", "everything", is_flag=True, help="Remove all ACLs: everything is allowed again."
)
def remove(session: Session, /, everything: bool, **filters: str | None) -> None:
    """Remove the ACLs that match all filters.

    \b
    Example:
      eosdb acls remove shop.db --principal User:alice --operation write
    """
    if any(filters.values()) == everything:
        raise click.UsageError("select the ACLs with at least one filter, or give --all")
    with session.open() as db:
        removed = db.admin.delete_acls(lambda acl: _fits(acl, filters))
    if not removed:
        raise InvalidRequestError("no ACL matches the filters; see `eosdb acls list`")
    output.done(f"removed {len(removed)} ACLs")
