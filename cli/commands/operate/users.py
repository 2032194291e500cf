"""`eosdb users`: SCRAM credentials of the server's users (kafka-configs.sh --entity-type users)."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from eosdb.admin.tools import Tools
from eosdb.cli import output
from eosdb.cli.file_command import FileGroup, Session
from eosdb.errors import InvalidRequestError
from eosdb.model.protocol.scram import MECHANISMS

_VARIABLE: Final = "EOSDB_USER_PASSWORD"
_MECHANISM: Final = click.Choice(tuple(MECHANISMS))


@click.group(cls=FileGroup)
def users() -> None:
    """Add, list and remove users of the server. In ACLs a user is User:NAME."""


@users.command()
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=_MECHANISM, default=tuple(MECHANISMS),
    help="Mechanism to store the password for (repeatable; default: each).",
)  # fmt: skip
def add(session: Session, name: str, mechanisms: tuple[str, ...]) -> None:
    """Add the user NAME, or change the user's password.

    The password comes from the variable EOSDB_USER_PASSWORD, or else from a prompt on a terminal, or else
    from the first line of standard input; never from an argument, which other users of the machine could
    see. The file stores salted keys, not the password.

    \b
    Example:
      eosdb users add shop.db alice
    """
    with session.open() as db:
        db.admin.set_password(name, _password(), mechanisms)
    output.done(f"added {name} for {', '.join(mechanisms)}")


@users.command(name="list")
@output.format_option
def list_(session: Session) -> None:
    """List users with the SCRAM mechanisms for which their passwords are stored.

    \b
    Example:
      eosdb users list shop.db
    """
    with session.open(read_only=True) as db:
        credentials = Tools(db.admin).list_credentials()
    output.listing(("User", "Mechanism", "Iterations"), credentials)


@users.command()
@click.argument("name")
@click.option("--mechanism", type=_MECHANISM, help="Only the password for this mechanism.")
def remove(session: Session, name: str, mechanism: str | None) -> None:
    """Remove the user NAME. Open connections are not closed.

    \b
    Example:
      eosdb users remove shop.db alice
    """
    with session.open() as db:
        db.admin.remove_user(name, mechanism)
    output.done(f"removed {name}")


def _password() -> str:
    if (given := os.environ.get(_VARIABLE)) is not None:
        return given
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    if not (line := sys.stdin.readline()):
        raise InvalidRequestError(
            f"no password: type it at a terminal, write it to standard input, or set {_VARIABLE}"
        )
    return line.rstrip("\r\n")
