"""Decides once per process whether the C extension passes rows between SQLite and Python.

The extension module registers its functions on connections. SQLite calls it for each new connection
(`sqlite3_auto_extension`), so it does not depend on Python's internals. It must use the same SQLite library
as Python: a second one in the process would drop the first one's locks.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from functools import cache
from types import ModuleType
from typing import Final, TypeVar
from zlib import adler32

C = TypeVar("C", bound=sqlite3.Connection)
VARIABLE: Final = "EOSDB_NATIVE"
"""The environment variable that turns the accelerator off if it is 0."""
_TRIAL: Final = (
    'SELECT eosdb_rows(key, value, headers, NULL, checksum, 100, 5, 6, 1, "offset", timestamp, 0, -1, 0) '
    "FROM eosdb_batch"
)
"""The trial: writes a batch of one record, and reads it."""


@cache
def rows() -> ModuleType | None:
    """Return the extension module (`_rows.c`); None if everything runs in Python."""
    return _outcome()[0]


def road() -> bool | str:
    """Return True if the accelerator is used, and otherwise the reason."""
    return True if rows() is not None else _outcome()[1]


def opened(connect: Callable[[], C]) -> C:
    """Open a connection with the accelerator's functions, if it is used."""
    module = rows()
    connection: C = connect() if module is None else module.opened(connect)
    return connection


def _outcome() -> tuple[ModuleType | None, str]:
    if os.environ.get(VARIABLE) == "0":
        return None, f"{VARIABLE}=0"
    try:
        module = importlib.import_module("eosdb.native._rows")
    except ImportError as error:
        return None, f"not built for this Python ({error})"
    if not hasattr(module, "examined"):  # Earlier versions of the module have no `examined`.
        return None, "built from an earlier version of eosdb; build it anew"
    missing = module.find(_sqlite_file())
    if missing is not None:
        return None, f"Python's SQLite does not show {missing}"
    failure = _failure(module)
    return (module, "") if failure is None else (None, failure)


def _sqlite_file() -> str | None:
    """Return the file of the module that contains SQLite; None if it is part of the program."""
    file: str | None = getattr(importlib.import_module("_sqlite3"), "__file__", None)
    return file


def _failure(module: ModuleType) -> str | None:
    """Test the module: write and read a record. Returns the fault, if any."""
    key, value, headers = b"key", b"value", "[]"
    content = 3 * adler32(key) + adler32(value) + 5 * adler32(headers.encode())
    try:
        with closing(module.opened(lambda: sqlite3.connect(":memory:"))) as connection:
            (cells,) = module.inserted(
                lambda: connection.execute(_TRIAL).fetchone(),
                [key, value], [headers], [7], array("q", [content]), (1, 5, 7, 0, -1, 0, -1, -1, 0, 0),
            )  # fmt: skip
        columns = cells and module.columns(cells)
    except sqlite3.Error as error:
        return f"found another SQLite than Python's ({error})"
    expected = ((5,), (7,), (0,), (key,), (value,), (headers,))
    return None if columns == expected else f"a trial gave {columns}"
