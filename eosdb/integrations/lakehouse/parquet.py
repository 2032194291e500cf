"""A folder of Parquet files, partitioned by topic and day, with a commit protocol, since Parquet has none.

Data files are first written outside of the partitions, so that no reader sees them. Replacing the file
`_eosdb/progress.json` is the commit. Then the data files are renamed to their final paths; after a crash
the next export does it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, TypedDict

from eosdb.errors import ConfigError, CorruptDatabaseError, IllegalStateError, StorageError
from eosdb.integrations.lakehouse import targets
from eosdb.model.damage import parsed
from eosdb.model.failpoints import Failpoint, reach

_OURS: Final = "_eosdb"
"""The folder of the export's own files. Spark, pyarrow and others ignore folders with this prefix."""
_STAGED: Final = f"{_OURS}/staged"
_SUFFIX: Final = ".unfinished"
"""The suffix of unfinished files: DuckDB reads their folder, but only files that match a pattern."""
_PROGRESS: Final = f"{_OURS}/progress.json"


class _FileProgress(TypedDict):
    """The content of the progress file; `files` are the files of the last commit."""

    numbers: dict[str, int]
    files: list[str]
    about: Mapping[str, object]


class ParquetTarget:
    columns: Sequence[str] = tuple(name for name in targets.COLUMNS if name != "topic")

    def __init__(self, folder: str) -> None:
        local = targets.local_path(folder)
        if local is None:
            raise ConfigError(
                f"{folder}: Parquet files are written into folders of this machine, since object storage "
                "has no rename; export delta or iceberg there"
            )
        self._folder = local
        self._lock: int | None = None

    def load(self) -> targets.Numbers:
        with self._translated():
            if self._lock is None:
                self._lock = self._locked()
            progress = self._progress()
            self._put_in_place(progress["files"])
            for name in os.listdir(self._at(_STAGED)):
                os.unlink(self._at(f"{_STAGED}/{name}"))
        return progress["numbers"]

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        return f"topic={topic}/day={day}/{name}", targets.SyncedFile(self._staged(name))

    def commit(self, new: targets.Commit) -> bool:
        paths = [it.path for it in new.files]
        with self._translated():
            numbers = {**self._progress()["numbers"], **targets.flat(new.after)}
            unfinished = self._at(f"{_PROGRESS}{_SUFFIX}")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
            progress: _FileProgress = {"numbers": numbers, "files": paths, "about": new.about}
            with targets.SyncedFile(unfinished) as file:
                file.write(json.dumps(progress).encode())
            targets.sync_folders(self._at(_OURS), [self._staged("x")])
            # decisions/0038: this rename is the commit of the export.
            os.rename(unfinished, self._at(_PROGRESS))
            targets.sync_folders(self._folder, [self._at(_PROGRESS)])
            reach(Failpoint.EXPORT_HALF_VISIBLE)
            self._put_in_place(paths)
        return True

    def remove(self, path: str) -> None:
        os.unlink(self._staged(os.path.basename(path)))

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _locked(self) -> int:
        """Create the folder if it does not exist, and return the descriptor that holds its lock."""
        local = self._folder
        if os.path.exists(local) and os.listdir(local) and not os.path.exists(self._at(_OURS)):
            raise ConfigError(
                f"{local} holds files that no export wrote; expected a new folder, or an earlier export"
            )
        os.makedirs(self._at(_STAGED), exist_ok=True)
        lock = os.open(self._at(f"{_OURS}/lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise IllegalStateError(
                f"{local}: another export is writing into this folder; wait for its end"
            ) from None
        return lock

    def _put_in_place(self, paths: Sequence[str]) -> None:
        moved = []
        for path in paths:
            os.makedirs(os.path.dirname(self._at(path)), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._staged(os.path.basename(path)), self._at(path))
                moved.append(self._at(path))
        targets.sync_folders(self._folder, moved)

    def _progress(self) -> _FileProgress:
        try:
            with open(self._at(_PROGRESS), encoding="utf-8") as file:
                found: _FileProgress = parsed(file.read())
        except FileNotFoundError:
            return {"numbers": {}, "files": [], "about": {}}
        except ValueError as error:
            raise CorruptDatabaseError(
                f"{self._at(_PROGRESS)} is damaged, so the progress of the export is unknown ({error}); "
                "restore it, or export into another folder"
            ) from error
        return found

    def _at(self, path: str) -> str:
        return os.path.join(self._folder, path)

    def _staged(self, name: str) -> str:
        return self._at(f"{_STAGED}/{name}{_SUFFIX}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._folder
            raise StorageError(f"{where} cannot be written: {error.strerror or error}") from error
