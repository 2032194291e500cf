"""Staged files: their names, which say whose they are; how they stay; and when they go.

A file is named by the write it belongs to. When a write has been committed, its other files and those of
earlier batches go: attempts that failed or lost, and what a killed driver left. Files of writes that nobody
repeats go an hour after anything of their write was alive, at the next commit to the same folder.
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

from eosdb.model import threads

_SUFFIX: Final = ".arrow"
_ORPHAN_MS: Final = 3600 * 1000
"""So long after the last sign of life no commit will name a staged file any more."""
_SIGN_S: Final = 300.0
"""How often those who live say so."""


class Write(NamedTuple):
    """What a staged file belongs to. Batches of one job are numbered; several writes of one batch have
    names."""

    job: str
    batch: int
    name: str

    @classmethod
    def of(cls, owner: str, batch: int, name: str = "") -> Write:
        """For texts of any kind."""
        return cls(*(_short(owner), batch, _short(name)))

    def makes_useless(self, other: Write) -> bool:
        """Whether nobody needs the other's files once this write has been committed."""
        return self.job == other.job and (other.batch < self.batch or other == self)

    def __str__(self) -> str:
        return f"{self.job}.{self.batch}.{self.name}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _write_of(file: str) -> Write | None:
    """None for a file of an earlier version."""
    match file.split("."):
        case [job, batch, name, _, _] if batch.isdigit():
            return Write(job, int(batch), name)
    return None


@contextlib.contextmanager
def new_file(
    folder: str, write: Write, schema: pa.Schema, *, sync: bool
) -> Iterator[tuple[str, pa.ipc.RecordBatchFileWriter]]:
    """A file that only this attempt knows: its path, and the writer of its rows. Removed when the block
    raises."""
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
    """During the block the files of the write are not taken for orphans: also those of tasks that have
    ended, while others go on."""
    ended = threading.Event()

    def say_so() -> None:
        while not ended.wait(_SIGN_S):
            for path in _files(folder):
                if _write_of(os.path.basename(path)) == write:
                    with contextlib.suppress(OSError):
                        os.utime(path)

    thread = threading.Thread(target=say_so, name="eosdb-staged-files", daemon=True)
    with threads.needed("the staged files"):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def sweep(folder: str, done: Write, now_ms: int) -> None:
    """Remove what is of no use once `done` has been committed, and orphans; the folder, too, if it is
    empty then."""
    for path in _files(folder):
        other = _write_of(os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):
            is_orphan = os.stat(path).st_mtime * 1000 < now_ms - _ORPHAN_MS
            if is_orphan or (other is not None and done.makes_useless(other)):
                os.unlink(path)
    with contextlib.suppress(OSError):  # Others may be staging.
        os.rmdir(folder)


def discard(path: str) -> None:
    """Remove a staged file that is no longer needed, and the folder if it is empty then."""
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
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
