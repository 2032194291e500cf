"""Spark's worker daemon with an application in it: it has the file open when it forks, and closes it then.

(`spark.python.daemon.module`; the variable FILE names the file.) The last process that closes a file
removes its WAL: that must not be the daemon while a worker is at work.
"""

from __future__ import annotations

import os
from uuid import uuid4

from pyspark.daemon import manager

import eosdb
from tests.chaos.fork_worker import append

FILE = "EOSDB_APPENDED_FILE"


class Application:
    """The first of the functions that are called before a fork, and the last behind it."""

    def __init__(self, path: str) -> None:
        self._path = path
        os.register_at_fork(before=self.open, after_in_parent=self.close)

    def open(self) -> None:
        self._db = eosdb.connect(self._path)
        append(self._db, self._path, f"daemon-{uuid4()}", 1)

    def close(self) -> None:
        append(self._db, self._path, f"daemon-{uuid4()}", 1)
        self._db.close()


if __name__ == "__main__":
    Application(os.environ[FILE])
    manager()
