"""A SQLAlchemy engine on an eosdb file, for the user's own queries and tables."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from eosdb.store.file.connection import connect
from eosdb.store.schema import guard
from eosdb.system.signals import is_of_a_signal

_POOL_SIZE: Final = 5


def make_engine(
    path: str,
    read_only: bool,
    busy_timeout_ms: int,
    note: Callable[[BaseException | None], None],
    check: Callable[[], None],
) -> tuple[Engine, Callable[[], None]]:
    """Create an engine whose connections have eosdb's settings: they make no checkpoints, cannot write
    eosdb's tables, and begin transactions with BEGIN. Also returns a function that closes idle connections.
    `note` is called with every error, `check` before every transaction."""

    def create() -> sqlite3.Connection:
        connection = connect(path, busy_timeout_ms, read_only=read_only)
        connection.set_authorizer(guard.authorizer(connection))
        return connection

    engine = create_engine("sqlite://", creator=create, poolclass=QueuePool, pool_size=_POOL_SIZE)
    raise_refusals(engine)

    @event.listens_for(engine, "handle_error")
    def note_error(context: ExceptionContext) -> None:
        note(context.original_exception)

    @event.listens_for(engine, "begin")
    def begin(connection: object) -> None:
        check()
        connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]

    opened: list[tuple[DBAPIConnection, ConnectionPoolEntry]] = []

    @event.listens_for(engine, "connect")
    def remember(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        for earlier in list(opened):
            if earlier[1].dbapi_connection is not earlier[0]:
                forget(*earlier)
        opened.append((connection, entry))

    @event.listens_for(engine, "detach")
    def forget(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        with contextlib.suppress(ValueError):  # Another thread has removed it already.
            opened.remove((connection, entry))

    def close() -> None:
        engine.dispose()
        for connection, entry in opened:
            # decisions/0018: after a signal, the pool may have dropped a connection without closing it.
            if entry.dbapi_connection is not connection or not entry.in_use:
                connection.close()

    return engine, close


def raise_refusals(engine: Engine) -> None:
    @event.listens_for(engine, "handle_error")
    def explain(context: ExceptionContext) -> None:
        if is_of_a_signal(context.original_exception):
            raise context.original_exception
        refusal = guard.refused(context.original_exception)
        if refusal is not None:
            raise refusal
