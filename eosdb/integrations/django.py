"""Publish in Django's own transaction: `join` in `transaction.atomic()`.

The file of the database alias must have been adopted (docs/web.md). This module opens and keeps nothing, so
forks, threads and `AppConfig.ready` need no care.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, connections

from eosdb.broker.core import Rules
from eosdb.broker.outbox import JoinedTransaction, rules_of
from eosdb.errors import ConfigError
from eosdb.model.config import BrokerConfig
from eosdb.store.writing.unit import Unit


class DjangoTransaction(JoinedTransaction):
    """The transaction of a block of `transaction.atomic()`."""

    def __init__(self, wrapper: Any, rules: Rules) -> None:
        super().__init__(wrapper.connection, rules)
        self._wrapper: Final = wrapper

    @contextlib.contextmanager
    def _unit(self) -> Iterator[Unit]:
        self._wrapper.validate_no_broken_transaction()
        try:
            with super()._unit() as unit:
                yield unit
        finally:
            # SQLite rolled back. Unless Django knows, each later statement is its own transaction.
            if self._wrapper.in_atomic_block and not self._connection.in_transaction:
                self._wrapper.needs_rollback = True


def join(
    using: str = DEFAULT_DB_ALIAS,
    *,
    principal: str = "User:ANONYMOUS",
    config: BrokerConfig | None = None,
) -> DjangoTransaction:
    """Publish, and commit offsets, in the transaction that `transaction.atomic(using)` has begun, like
    `eosdb.join`. Raises ConfigError if the alias is not a SQLite database."""
    wrapper = connections[using]
    if wrapper.vendor != "sqlite":
        raise ConfigError(
            f"using: the database {using!r} is {wrapper.display_name}, expected SQLite: rows and records "
            "must be in one file to be one commit"
        )
    wrapper.ensure_connection()
    return DjangoTransaction(wrapper, rules_of(principal, config))
