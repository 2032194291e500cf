"""Starting threads, which the system may refuse to a process or user that has too many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eosdb.errors import StorageError


@contextmanager
def needed(what: str) -> Iterator[None]:
    """A context for starting threads: raises StorageError if the system refuses."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        raise StorageError(
            f"no thread can be started for {what}: this process, or its user, has as many as the system "
            "allows (ulimit -u, or the pids limit of the container); end some and try again"
        ) from error
