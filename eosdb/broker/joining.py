"""`eosdb.join`: publish in a transaction that the program has begun on a connection of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eosdb.broker.handler import Rules
from eosdb.broker.outbox import LogTransaction, Outbox
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.projection import apply
from eosdb.errors import ConfigError
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.config import BrokerConfig
from eosdb.model.validation import check_text
from eosdb.store.writing.joined_unit import driver_connection, joined
from eosdb.store.writing.unit import Unit

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session

    Joinable = sqlite3.Connection | Session | scoped_session[Session] | Connection


class JoinedTransaction(LogTransaction):
    """The transaction that is open on a connection of the program's own; of no use in between."""

    def __init__(self, connection: sqlite3.Connection, rules: Rules) -> None:
        super().__init__(Outbox(rules))
        self._connection: Final = connection

    @contextlib.contextmanager
    def _unit(self) -> Iterator[Unit]:
        with joined(self._connection, apply) as unit:
            yield unit


def join(
    connection: Joinable,
    *,
    principal: str = "User:ANONYMOUS",
    config: BrokerConfig | None = None,
    clock: Clock | None = None,
) -> JoinedTransaction:
    """Publish, and commit offsets, in the transaction that is open on a connection to a file with eosdb's
    tables: a `sqlite3.Connection`, or a SQLAlchemy `Session` or `Connection`.

    It is yours to commit or to roll back, also to a savepoint: records and offsets share the fate of your
    rows. The file need not be open in eosdb; `principal`, `config` and `clock` are those of `connect`.
    Raises ConfigError for anything that is not such a connection.
    """
    return JoinedTransaction(driver_connection(connection), rules_of(principal, config, clock))


def rules_of(
    principal: str, config: BrokerConfig | None = None, clock: Clock | None = None
) -> Rules:
    """The rules of somebody who has not opened the file."""
    config = config or BrokerConfig()
    authorizer = Authorizer(check_text("principal", principal, ConfigError), config.super_users)
    return Rules(clock or SystemClock(), config, authorizer)
