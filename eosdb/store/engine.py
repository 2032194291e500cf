"""A SQLAlchemy engine on an eosdb file, for the user's own queries and tables."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine, event

from eosdb.store.store import connect


def make_engine(path: str, read_only: bool, busy_timeout_ms: int) -> Engine:
    """Connections have eosdb's settings: none of them checkpoints, and BEGIN is SQLAlchemy's to
    say."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: connect(path, busy_timeout_ms, read_only=read_only),
        poolclass=None,
        pool_size=5,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: object) -> None:
        connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]

    return engine
