"""A cache of fetched snapshots: a folder of bounded size, shared by the programs of one user on a host."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from eosdb.errors import StorageError
from eosdb.maintenance import claims
from eosdb.model.clock import Clock

ENVIRONMENT: Final = "EOSDB_CACHE"
SIZE_BYTES: Final = 10 * 1024**3
IN_USE_MS: Final = 10 * 60 * 1000
"""The time after its last request during which a snapshot is not removed: a program may be about to open
it."""
_SUFFIX: Final = ".db"


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder, and the most bytes of snapshots that it may hold."""

    folder: str
    size_bytes: int = SIZE_BYTES

    @classmethod
    def default(cls) -> Self:
        """Return the cache in the folder `EOSDB_CACHE`, by default in a folder of this user among the
        temporary files. Raises StorageError if the folder cannot be created or belongs to another user."""
        if named := os.environ.get(ENVIRONMENT):
            return cls(named)
        folder = os.path.join(tempfile.gettempdir(), f"eosdb-cache-{os.geteuid()}")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be made: {error.strerror}") from error
        if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
            raise StorageError(
                f"{folder} belongs to somebody else; name another folder in {ENVIRONMENT}"
            )
        return cls(folder)

    def path(self, file_id: str, snapshot: str) -> str:
        return os.path.join(self.folder, file_id, snapshot + _SUFFIX)

    def newest(self, file_id: str) -> str | None:
        """Return the path of the file's most recently used snapshot; None if there is none."""
        return max(self._found(file_id), default=(0, 0, None))[2]

    @contextlib.contextmanager
    def locked(self, file_id: str) -> Iterator[None]:
        """Hold the lock for fetching a file, so that other programs wait and then find it in the cache."""
        folder = os.path.join(self.folder, file_id)
        os.makedirs(folder, exist_ok=True)
        descriptor = claims.claim(os.path.join(folder, "lock"))
        try:
            yield
        finally:
            os.close(descriptor)

    def make_room(self, clock: Clock) -> None:
        """Remove the least recently used snapshots until the cache is within its bound."""
        with contextlib.suppress(OSError):
            snapshots = sorted(
                entry for name in os.listdir(self.folder) for entry in self._found(name)
            )
            too_much = sum(size for _, size, _ in snapshots) - self.size_bytes
            for used_ns, size, path in snapshots:
                if too_much <= 0 or clock.time_ms() - used_ns // 1_000_000 < IN_USE_MS:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                too_much -= size

    def _found(self, file_id: str) -> list[tuple[int, int, str]]:
        """Return for each snapshot the time of its last use (ns), its size, and its path."""
        snapshots = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(os.path.join(self.folder, file_id)):
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat()
                    snapshots.append((status.st_mtime_ns, status.st_size, entry.path))
        return snapshots
