"""The global options and the file of a command, which is opened on demand."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace

import click

import eosdb
from eosdb.errors import DatabaseNotFoundError, ReadOnlyDatabaseError
from eosdb.model.values import Durability


@dataclass(frozen=True, slots=True)
class Session:
    """The global options, and the file that the command is given."""

    path: str | None
    is_named: bool = True
    """Whether the command line names the file; EOSDB_DB may, too."""
    read_only: bool = False
    principal: str = "User:ANONYMOUS"

    def at(self, path: str) -> Session:
        """The session on another file."""
        return replace(self, path=path, is_named=True)

    def named_path(self) -> str:
        """The path of the file. Raises UsageError if nothing names one."""
        if self.path is None:
            raise click.UsageError(
                "name the database file: FILE before the other arguments, --db PATH, or EOSDB_DB",
                click.get_current_context(),
            )
        return self.path

    def check_may_write(self) -> None:
        """Raises ReadOnlyDatabaseError if --read-only was given."""
        if self.read_only:
            raise ReadOnlyDatabaseError(
                "this command writes, which --read-only forbids; run it without --read-only"
            )

    def open(
        self,
        *,
        create: bool = False,
        read_only: bool = False,
        adopt: bool | str = False,
        durability: Durability = "full",
        config: eosdb.BrokerConfig | None = None,
    ) -> eosdb.Database:
        """Open the database. Only `init` and --create create it."""
        path = self.named_path()
        if not read_only:
            self.check_may_write()
        try:
            return eosdb.connect(
                path,
                create=create,
                read_only=read_only,
                adopt=adopt,
                durability=durability,
                principal=self.principal,
                config=config,
            )
        except DatabaseNotFoundError as error:
            if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
                raise
            options = {option.name for option in click.get_current_context().command.params}
            how = "--create, or " if "create" in options else ""
            raise DatabaseNotFoundError(
                f"{str(error).partition(';')[0]}; make it with {how}`eosdb init {shlex.quote(path)}`"
            ) from None


pass_session = click.make_pass_decorator(Session)
