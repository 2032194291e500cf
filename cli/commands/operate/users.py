"""`eosdb users`: who may come to a server that asks for names and passwords (kafka-configs.sh)."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from eosdb.cli import output
from eosdb.cli.session import Session, pass_session
from eosdb.errors import InvalidRequestError
from eosdb.model.protocol.scram import MECHANISMS

_VARIABLE: Final = "EOSDB_USER_PASSWORD"
_MECHANISM: Final = click.Choice(tuple(MECHANISMS))


@click.group()
def users() -> None:
    """Add, list and remove users of the server. ACLs know a user as User:NAME."""


@users.command()
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=_MECHANISM, default=tuple(MECHANISMS),
    help="Mechanism to store the password for (repeatable; default: each).",
)  # fmt: skip
@pass_session
def add(session: Session, name: str, mechanisms: tuple[str, ...]) -> None:
    """Add the user NAME, or give one another password.

    The password is asked for at a terminal, else it is the first line of standard input; the variable
    EOSDB_USER_PASSWORD goes before both. It is never an argument, which other users of the machine can
    see. The file keeps salted keys of it, and not the password.

    \b
    Example:
      eosdb users add alice
    """
    with session.open() as db:
        db.admin.set_password(name, _password(), mechanisms)
    output.line(f"added {name} for {', '.join(mechanisms)}")


@users.command(name="list")
@output.format_option
@pass_session
def list_(session: Session, output_format: str) -> None:
    """List users, and the mechanisms that their passwords are stored for.

    \b
    Example:
      eosdb users list
    """
    with session.open(read_only=True) as db:
        found = db.admin.list_credentials()
    columns = ("User", "Mechanism", "Iterations")
    output.rows(columns, [(c.user, c.mechanism, c.iterations) for c in found], output_format)


@users.command()
@click.argument("name")
@click.option("--mechanism", type=_MECHANISM, help="Only the password for this mechanism.")
@pass_session
def remove(session: Session, name: str, mechanism: str | None) -> None:
    """Remove the user NAME. Connections that are open stay so.

    \b
    Example:
      eosdb users remove alice
    """
    with session.open() as db:
        db.admin.remove_user(name, mechanism)
    output.line(f"removed {name}")


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
