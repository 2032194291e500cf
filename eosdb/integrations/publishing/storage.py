"""A folder in object storage, through fsspec.

Objects are read and written as a whole, with retries after network errors; all failures raise errors of
eosdb.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from eosdb.errors import ConfigError, StorageError
from eosdb.integrations.publishing.manifest import Stored
from eosdb.model import threads
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.validation import check_text
from eosdb.model.words import needs_extra
from eosdb.store.schema.new_file import sync_folder
from eosdb.system.road import road

T = TypeVar("T")
R = TypeVar("R")
_PAUSES_MS: Final = (100, 400, 1600)
"""The pauses between attempts (ms). The libraries that fsspec uses make attempts of their own."""
_THREADS: Final = 4
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")
"""The names under which file systems list the time of writing."""
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.unfinished")


class Storage:
    """A folder in object storage; names are relative to it. Threads may share it."""

    def __init__(self, url: str, system: Any, root: str, clock: Clock) -> None:
        self.url: Final = url.rstrip("/")
        self._system: Final = system
        self._root: Final = root.rstrip("/")
        self._clock: Final = clock
        protocols = system.protocol
        self._is_local: Final = "file" in (
            (protocols,) if isinstance(protocols, str) else protocols
        )

    @classmethod
    def open(
        cls, url: str, options: Mapping[str, object] | None = None, clock: Clock | None = None
    ) -> Storage:
        """Open a folder. `options` are those of fsspec's file system, which by default reads them from the
        environment. Raises ConfigError for an unknown URL or option, and if a package is missing."""
        check_text("url", url, ConfigError)
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ConfigError(needs_extra("object storage", "publish", error)) from None
        try:
            system, root = url_to_fs(url, **(options or {}))
        except ImportError as error:
            raise ConfigError(
                f"{url}: {error}; s3:// needs s3fs, gs:// gcsfs, abfs:// adlfs (from pip)"
            ) from None
        except Exception as error:
            raise ConfigError(f"{url} cannot be opened by fsspec: {error}") from error
        return cls(url, system, root, clock or SystemClock())

    def inside(self, name: str) -> Storage:
        return Storage(f"{self.url}/{name}", self._system, f"{self._root}/{name}", self._clock)

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """Read an object, or its bytes [start, end); None if it does not exist. Raises StorageError."""
        path = self._path(name)
        return self._attempt(
            name, "read", lambda: bytes(self._system.cat_file(path, start=start, end=end))
        )

    def write(self, name: str, data: bytes) -> None:
        """Write an object atomically and durably. Raises StorageError."""
        path = self._path(name)
        put = self._write_file if self._is_local else self._system.pipe_file
        if self._attempt(name, "written", lambda: put(path, data) or True) is None:
            raise StorageError(
                f"{self.url}/{name} cannot be written: there is no such bucket or folder"
            )

    def listing(self, folder: str = "") -> dict[str, Stored]:
        """The objects and folders in a folder, by name; folders have size 0. Raises StorageError."""
        path = self._path(folder)

        def ask() -> list[dict[str, Any]]:
            self._system.invalidate_cache()
            return list(self._system.ls(path, detail=True))

        found = self._attempt(folder, "listed", ask) or []
        return {
            entry["name"].rstrip("/").rpartition("/")[2]: Stored(entry["size"] or 0, _time(entry))
            for entry in found
        }

    def now(self, name: str) -> float:
        """The storage's time (s): this call writes a small object and reads its time."""
        self.write(name, b"This object tells the time.\n")
        path = self._path(name)

        def ask() -> float:
            self._system.invalidate_cache()
            return _time(self._system.info(path)) or 0.0

        return self._attempt(name, "read", ask) or 0.0

    def remove(self, names: list[str]) -> None:
        """Remove objects; missing ones are ignored. Raises StorageError."""

        def remove(name: str) -> None:
            self._attempt(name, "removed", lambda: self._system.rm_file(self._path(name)))

        each(remove, names, lambda _: None)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _write_file(self, path: str, data: bytes) -> None:
        """Write a local file: it is synced under another name, then renamed."""
        _make_folder(os.path.dirname(path))
        unfinished = f"{path}.{uuid.uuid4().hex}.unfinished"
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                road.sync(file.fileno())
            os.rename(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
        sync_folder(path)

    def _attempt(self, name: str, done: str, work: Callable[[], T]) -> T | None:
        """Call `work` with retries; returns None if the object does not exist."""
        for pause_ms in (*_PAUSES_MS, None):
            try:
                return work()
            except FileNotFoundError:
                return None
            except Exception as error:  # Each kind of storage raises its own errors.
                if pause_ms is None or isinstance(error, PermissionError):
                    said = " ".join(str(error).split())[:200]
                    raise StorageError(
                        f"{self.url}/{name} cannot be {done}: {type(error).__name__}: {said}; finished "
                        "uploads are kept; call again to continue"
                    ) from error
                self._clock.sleep_ms(pause_ms)
        raise AssertionError


def each(work: Callable[[T], R], items: list[T], on_done: Callable[[R], object]) -> None:
    """Run `work` on all items concurrently, and call `on_done` in this thread with each result, in
    order."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="eosdb-publishing") as pool:
        with threads.needed("publishing"):
            results = pool.map(work, items)
        for result in results:
            on_done(result)


def finished_name(name: str) -> str:
    """The final name of an object, for the name under which it is written."""
    return _UNFINISHED.sub("", name)


def _make_folder(path: str) -> None:
    if not os.path.isdir(path):
        _make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        sync_folder(path)


def _time(entry: Mapping[str, Any]) -> float | None:
    for name in _TIMES:
        found = entry.get(name)
        if isinstance(found, int | float):
            return float(found)
        if found is not None and hasattr(found, "timestamp"):
            return float(found.timestamp())
    return None
