"""Staged files: how they are named, kept and removed.

The name of a file contains the write it belongs to. Once a write is committed, its remaining files and
those of earlier batches are removed: files of failed or speculative attempts, and of a killed driver. Files
of a write that is never repeated are removed by the first commit to the folder an hour after the write's
last sign of life.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from eosdb.model.threads import Thread
from eosdb.system.road import road

_SUFFIX: Final = ".arrow"
_ORPHAN_MS: Final = 3600 * 1000
"""A staged file is an orphan this long after the last sign of life of its write."""
_SIGN_S: Final = 300.0
"""How often running tasks and commits renew the times of their files."""


class Write(NamedTuple):
    """The write that a staged file belongs to: a job, the number of a batch, and the name of the write in
    the batch."""

    job: str
    batch: int
    name: str

    @classmethod
    def of(cls, owner: str, batch: int, name: str = "") -> Write:
        """Build a write from an owner and name of any characters and length."""
        return cls(*(_short(owner), batch, _short(name)))

    def makes_useless(self, other: Write) -> bool:
        """Whether the other write's files are no longer needed once this write is committed."""
        return self.job == other.job and (other.batch < self.batch or other == self)

    def __str__(self) -> str:
        return f"{self.job}.{self.batch}.{self.name}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _write_of(file: str) -> Write | None:
    """Parse a file's name; None if an earlier version wrote it."""
    match file.split("."):
        case [job, batch, name, _, _] if batch.isdigit():
            return Write(job, int(batch), name)
    return None


@contextlib.contextmanager
def new_file(
    folder: str, write: Write, schema: pa.Schema, *, sync: bool
) -> Iterator[tuple[str, pa.ipc.RecordBatchFileWriter]]:
    """Context manager: a new file, as its path and a writer. The file is removed if the block raises."""
    path = os.path.join(folder, f"{write}.{uuid.uuid4().hex}{_SUFFIX}")
    with contextlib.ExitStack() as cleanup:
        sink = None
        while sink is None:
            os.makedirs(folder, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # A commit has just removed the folder.
                sink = cleanup.enter_context(open(path, "wb"))
        try:
            yield path, cleanup.enter_context(pa.ipc.new_file(sink, schema))
            cleanup.pop_all().close()
            if sync:
                _sync(path)
        except BaseException:
            discard(path)
            raise


def read(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


@contextlib.contextmanager
def alive(folder: str, write: Write) -> Iterator[None]:
    """Context manager: until it exits, no file of the write becomes an orphan, including files of tasks
    that have ended."""
    ended = threading.Event()

    def say_so() -> None:
        while not ended.wait(_SIGN_S):
            for path in _files(folder):
                if _write_of(os.path.basename(path)) == write:
                    with contextlib.suppress(OSError):
                        os.utime(path)

    thread = Thread("the staged files", "eosdb-staged-files", say_so)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def sweep(folder: str, done: Write, now_ms: int) -> None:
    """Remove orphans and the files that the commit of `done` made useless; and the folder if it is then
    empty."""
    for path in _files(folder):
        other = _write_of(os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):
            is_orphan = os.stat(path).st_mtime * 1000 < now_ms - _ORPHAN_MS
            if is_orphan or (other is not None and done.makes_useless(other)):
                os.unlink(path)
    with contextlib.suppress(OSError):  # Others may be staging.
        os.rmdir(folder)


def discard(path: str) -> None:
    """Remove a staged file, and the folder if it is then empty."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _files(folder: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        names = sorted(os.listdir(folder))
        return [os.path.join(folder, name) for name in names if name.endswith(_SUFFIX)]
    return []


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        road.sync(descriptor)
    finally:
        os.close(descriptor)
