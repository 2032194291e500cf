"""`eosdb acls`: access control lists (kafka-acls.sh)."""

from __future__ import annotations

import click

from eosdb import Acl
from eosdb.cli import output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import InvalidRequestError

_OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write",
)  # fmt: skip
_RESOURCES = ("topic", "group", "transactional_id", "cluster")


@click.group(cls=FileGroup)
def acls() -> None:
    """Add, list and remove ACLs. While there is no ACL, everything is allowed."""


@acls.command()
@click.option(
    "--principal", required=True, help="Principal as TYPE:NAME; User:* matches every user."
)
@click.option(
    "--operation", "operations", multiple=True, required=True, type=click.Choice(_OPERATIONS),
    help="Operation to allow or deny (repeatable).",
)  # fmt: skip
@click.option(
    "--resource-type", required=True, type=click.Choice(_RESOURCES), help="Type of the resource."
)
@click.option(
    "--resource-name", default=None,
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
    output.line(f"added {len(rows)} ACLs for {principal}")


@acls.command(name="list")
@click.option("--principal", help="Only ACLs of this principal.")
@click.option(
    "--resource-type", type=click.Choice(_RESOURCES), help="Only ACLs for this resource type."
)
@output.format_option
def list_(session: Session, principal: str | None, resource_type: str | None) -> None:
    """List ACLs.

    \b
    Example:
      eosdb acls list shop.db --principal User:alice
    """
    with session.open(read_only=True) as db:
        acls = db.admin.list_acls()
    columns = (
        "Principal", "Operation", "ResourceType", "ResourceName", "PatternType", "Permission",
    )  # fmt: skip
    output.rows(
        columns,
        (
            acl
            for acl in acls
            if principal in (None, acl.principal) and resource_type in (None, acl.resource_type)
        ),
    )


@acls.command()
@click.option("--principal", help="Only ACLs of this principal.")
@click.option("--operation", type=click.Choice(_OPERATIONS), help="Only ACLs for this operation.")
@click.option(
    "--resource-type", type=click.Choice(_RESOURCES), help="Only ACLs for this resource type."
)
@click.option("--resource-name", help="Only ACLs for this resource name.")
@click.option(
    "--all", "everything", is_flag=True, help="Remove all ACLs: everything is allowed again."
)
def remove(
    session: Session,
    principal: str | None,
    operation: str | None,
    resource_type: str | None,
    resource_name: str | None,
    everything: bool,
) -> None:
    """Remove the ACLs that match all filters.

    \b
    Example:
      eosdb acls remove shop.db --principal User:alice --operation write
    """
    filters = {
        "principal": principal, "operation": operation, "resource_type": resource_type,
        "resource_name": resource_name,
    }  # fmt: skip
    wanted = {name: value for name, value in filters.items() if value is not None}
    if bool(wanted) == everything:
        raise click.UsageError("select the ACLs with at least one filter, or give --all")
    with session.open() as db:
        removed = db.admin.delete_acls(
            lambda acl: all(getattr(acl, name) == value for name, value in wanted.items())
        )
    if not removed:
        raise InvalidRequestError("no ACL matches the filters; see `eosdb acls list`")
    output.line(f"removed {len(removed)} ACLs")
