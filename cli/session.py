"""What a command is run with: the named file, opened on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

import eosdb
from eosdb.errors import ReadOnlyDatabaseError


@dataclass(frozen=True, slots=True)
class Session:
    """The global options."""

    path: str | None
    read_only: bool = False
    principal: str = "User:ANONYMOUS"

    def at(self, path: str) -> Session:
        """The same for a file that a command's own argument names."""
        return replace(self, path=path)

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
        durability: str = "full",
        config: eosdb.BrokerConfig | None = None,
    ) -> eosdb.Database:
        """The database; only `init` and `serve --create` create one."""
        if self.path is None:
            raise click.UsageError("name the database file: --db PATH, or set EOSDB_DB")
        if not read_only:
            self.check_may_write()
        return eosdb.connect(
            self.path,
            create=create,
            read_only=read_only,
            adopt=adopt,
            durability=durability,
            principal=self.principal,
            config=config,
        )


pass_session = click.make_pass_decorator(Session)
