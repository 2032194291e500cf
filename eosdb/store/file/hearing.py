"""Long SQLite statements that can be interrupted, and report progress."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

_INSTRUCTIONS_A_LOOK: Final = 1_000


@contextlib.contextmanager
def hearing(
    connection: sqlite3.Connection, look: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call `look` regularly while a statement in the block runs. If `look` or a signal
    (KeyboardInterrupt) raises, the statement is interrupted and the block raises that error."""
    raised: list[BaseException] = []

    def look_now() -> bool:
        try:
            look()
        except BaseException as error:
            raised.append(error)
        return bool(raised)

    try:
        connection.set_progress_handler(look_now, _INSTRUCTIONS_A_LOOK)
        yield
    except sqlite3.OperationalError as error:
        if raised:
            raise raised[0] from error
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error  # The signal came before `look` could catch it.
        raise
    finally:
        connection.set_progress_handler(None, 0)
