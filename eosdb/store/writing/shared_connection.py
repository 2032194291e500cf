"""A connection that runs the user's statements and eosdb's own in turn (`Database.begin`).

Calls that would change the meaning of eosdb's statements are rejected. After calls that would affect the
next block, which belongs to another request, the connection is not used again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, Protocol

from eosdb.errors import InvalidRequestError
from eosdb.store.schema import guard

_CARRIED: Final = (
    "create_aggregate", "create_collation", "create_function", "create_window_function",
    "load_extension", "set_trace_callback",
)  # fmt: skip
"""Methods whose effect lasts as long as the connection."""
_REFUSED: Final = ("close", "deserialize", "set_authorizer", "setconfig", "setlimit")
_COLLATIONS: Final = frozenset({"binary", "nocase", "rtrim"})


class _Owner(Protocol):
    is_ours: bool


class SharedConnection(sqlite3.Connection):
    """A connection whose owner says whether eosdb or the user runs statements."""

    owner: _Owner | None = None
    carries = False
    """Whether it has state that would affect the next block."""

    @property
    def is_guarded(self) -> bool:
        return self.owner is not None and not self.owner.is_ours

    def blobopen(self, *args: Any, **kwargs: Any) -> sqlite3.Blob:
        """Reject writable blobs of eosdb's tables: SQLite does not call the authorizer for blobs."""
        if self.is_guarded and guard.is_own(str(args[0])) and not kwargs.get("readonly"):
            raise _refusal(f"writing a blob of {args[0]}")
        return super().blobopen(*args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        if self.is_guarded and name in ("isolation_level", "autocommit"):
            if value != getattr(self, name):
                raise _refusal(f"setting {name}")
            return
        super().__setattr__(name, value)

    def set_progress_handler(self, progress_handler: Callable[[], Any] | None, n: int) -> None:
        """Set a progress handler for the user's statements; it does not interrupt eosdb's, such as
        ROLLBACK."""
        watch = progress_handler
        if self.is_guarded and progress_handler is not None:
            self.carries = True

            def watch() -> Any:
                return self.is_guarded and progress_handler()

        super().set_progress_handler(watch, n)

    def check_function(self, name: str) -> None:
        """Raises InvalidRequestError for SQLite's own functions and collations that eosdb's statements
        and views call."""
        sql = "SELECT 1 FROM pragma_function_list WHERE builtin AND name = ?"
        if name.lower() in _COLLATIONS or self.execute(sql, (name.lower(),)).fetchone():
            raise _refusal(f"replacing SQLite's {name}")


def _refusal(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} is refused on the connection of db.begin() and of handlers with two parameters: eosdb's "
        "own statements run on it, too; use a connection of your own (db.engine, sqlite3)"
    )


def _carried(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: SharedConnection, *args: Any, **kwargs: Any) -> Any:
        if self.is_guarded:
            if name.startswith("create_"):
                self.check_function(str(args[0] if args else kwargs.get("name")))
            self.carries = True
        return plain(self, *args, **kwargs)

    return method


def _refused(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: SharedConnection, *args: Any, **kwargs: Any) -> Any:
        if self.is_guarded:
            raise _refusal(f"{name}()")
        return plain(self, *args, **kwargs)

    return method


for _names, _made in ((_CARRIED, _carried), (_REFUSED, _refused)):
    for _name in _names:
        if hasattr(sqlite3.Connection, _name):  # Older Pythons lack some of them.
            setattr(SharedConnection, _name, _made(_name, getattr(sqlite3.Connection, _name)))
