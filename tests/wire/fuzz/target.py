"""A server in a process of its own, so that a crash is seen and its memory can be measured.

As a program: serves a file, writes its log to another, and ends when its input does; its exit code says
whether `verify` found the file in order.
"""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import eosdb

_PATIENCE_S: Final = 300.0
_MMAP_BYTES: Final = 128 * 1024
"""Else glibc keeps freed buffers of megabytes for each thread, which hides what really grows."""


def main(path: str, log: str) -> int:
    logging.basicConfig(filename=log, level=logging.WARNING)
    with eosdb.connect(path, durability="normal") as db:
        db.admin.create_topic("t", partitions=2)
        db.admin.create_topic("u")
        with db.serve() as server:
            print(server.port, flush=True)
            sys.stdin.read()
        found = db.verify()
        if not found.ok:
            logging.error("verify: %s", found)
        return 0 if found.ok else 3


class Target:
    """The process. A context manager that ends it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.wire.fuzz.target",
                str(folder / "fuzzed.db"),
                str(self._log),
            ],
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(_MMAP_BYTES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.first_bytes = self.resident_bytes()

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """What it has in memory now."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def threads(self) -> int:
        """How many it has."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("Threads:")[1].split()[0])

    def log(self, begin: int = 0) -> bytes:
        """What its loggers have written, from a byte on."""
        with self._log.open("rb") as file:
            file.seek(begin)
            return file.read()

    def end(self) -> int:
        """Close the server and verify the file; the exit code."""
        self._process.communicate(timeout=_PATIENCE_S)
        return self._process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
