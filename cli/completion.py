"""What the Tab key completes besides commands, options and paths: names in the file that the line names.

The shell shows whatever is printed, in the middle of the user's line. So nothing is: a file that cannot be
read has no names.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from eosdb import Database

FILE: Final = "eosdb.file"
"""The key in `Context.meta` of the file that the line names."""
_LOCK_TIMEOUT_MS: Final = 200


def _topics(db: Database) -> Iterable[str]:
    return db.admin.list_topics()


def _groups(db: Database) -> Iterable[str]:
    return db.broker.list_groups()


def _transactional_ids(db: Database) -> Iterable[str]:
    return (listing.transactional_id for listing in db.broker.list_transactions())


_NAMES: Final[dict[str, Callable[[Database], Iterable[str]]]] = {
    "topic": _topics,
    "topics": _topics,
    "topic_option": _topics,
    "to_topic": _topics,
    "group": _groups,
    "transactional_id": _transactional_ids,
}
"""The parameters of commands that name something in the file."""


class _Name(click.types.StringParamType):
    """Text that is the name of something in the file."""

    def __init__(self, names: Callable[[Database], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        hidden = "" if incomplete.startswith("_") else "__"
        return [
            CompletionItem(name)
            for name in _names_in_file(ctx, self._names)
            if name.startswith(incomplete) and not (hidden and name.startswith(hidden))
        ]


def complete_names(params: Iterable[click.Parameter]) -> None:
    """Let the parameters that name something in the file complete it."""
    for param in params:
        names = _NAMES.get(param.name or "")
        if names is not None and param.type is click.STRING:
            param.type = _Name(names)


def named_file(ctx: click.Context) -> str | None:
    """The file that the line names, as FILE or --db, or else EOSDB_DB."""
    path = ctx.meta.get(FILE) or ctx.find_root().params.get("path")
    return path if isinstance(path, str) else None


def _names_in_file(ctx: click.Context, names: Callable[[Database], Iterable[str]]) -> list[str]:
    path = named_file(ctx)
    if path is None:
        return []
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.suppress(Exception):
            import eosdb

            config = eosdb.BrokerConfig(lock_timeout_ms=_LOCK_TIMEOUT_MS)
            principal = ctx.find_root().params.get("principal") or "User:ANONYMOUS"
            with eosdb.connect(path, read_only=True, principal=principal, config=config) as db:
                return sorted(names(db))
        return []
    finally:
        logging.disable(disabled)
