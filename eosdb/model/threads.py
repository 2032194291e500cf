"""Threads that the system may refuse, to a process or a user that has as many as it may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eosdb.errors import StorageError


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Around what starts threads. Raises StorageError when there is none to be had."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        raise StorageError(
            f"no thread can be started for {what}: this process, or its user, has as many as the system "
            "allows (ulimit -u, or the pids limit of the container); end some and try again"
        ) from error
