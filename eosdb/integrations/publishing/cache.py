"""A folder of fetched snapshots, shared by the programs of one user on a host, and bounded."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from eosdb.errors import StorageError
from eosdb.maintenance import frozen
from eosdb.model.clock import Clock

ENVIRONMENT: Final = "EOSDB_CACHE"
SIZE_BYTES: Final = 10 * 1024**3
IN_USE_MS: Final = 10 * 60 * 1000
"""A snapshot asked for since is not removed: somebody may be about to open it."""
_SUFFIX: Final = ".db"


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder, and how many bytes of snapshots it may hold."""

    folder: str
    size_bytes: int = SIZE_BYTES

    @classmethod
    def default(cls) -> Self:
        """`EOSDB_CACHE`, or a folder of this user's in the system's one for temporary files. Raises
        StorageError if that cannot be made, or belongs to somebody else."""
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
        """The snapshot of the file that was used last; None if there is none."""
        return max(self._found(file_id), default=(0, 0, None))[2]

    @contextlib.contextmanager
    def locked(self, file_id: str) -> Iterator[None]:
        """One program at a time fetches a file; the others find it there."""
        folder = os.path.join(self.folder, file_id)
        os.makedirs(folder, exist_ok=True)
        descriptor = frozen.claim(os.path.join(folder, "lock"))
        try:
            yield
        finally:
            os.close(descriptor)

    def make_room(self, clock: Clock) -> None:
        """Remove those that were used longest ago until the rest is small enough."""
        with contextlib.suppress(OSError):
            found = sorted(one for name in os.listdir(self.folder) for one in self._found(name))
            too_much = sum(size for _, size, _ in found) - self.size_bytes
            for used_ns, size, path in found:
                if too_much <= 0 or clock.time_ms() - used_ns // 1_000_000 < IN_USE_MS:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                too_much -= size

    def _found(self, file_id: str) -> list[tuple[int, int, str]]:
        """When each snapshot was used last, its size, and its path."""
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(os.path.join(self.folder, file_id)):
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
        return found
