"""Reads published snapshots: lists them, and downloads one as a complete, verified, read-only file.

A cache keeps fetched snapshots: a folder of bounded size, shared by the programs of one user on a host.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from eosdb.errors import CorruptDatabaseError, IllegalStateError, StorageError
from eosdb.integrations.publishing import manifest
from eosdb.integrations.publishing.manifest import BLOCK, Manifest, StoredRun, block_length
from eosdb.integrations.publishing.sending import CHUNKS, LATEST, SNAPSHOTS
from eosdb.integrations.publishing.storage import Storage, each
from eosdb.maintenance import copies
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.progress import Progress, report_progress
from eosdb.model.validation import check_path
from eosdb.store.schema.new_file import FORMAT_AT, ROLLBACK_FORMAT, sync_folder
from eosdb.system.descriptors import head
from eosdb.system.road import road

ENVIRONMENT: Final = "EOSDB_CACHE"
SIZE_BYTES: Final = 10 * 1024**3
IN_USE_MS: Final = 10 * 60 * 1000
"""A snapshot stays for this time after its last request: a program may be about to open it."""
_SUFFIX: Final = ".db"


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of fetched snapshots: its folder, and the maximum of bytes in it."""

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
            raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
        if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
            raise StorageError(
                f"{folder} belongs to another user; name another folder in {ENVIRONMENT}"
            )
        return cls(folder)

    def path(self, file_id: str, snapshot: str) -> str:
        return os.path.join(self.folder, file_id, snapshot + _SUFFIX)

    def newest(self, file_id: str) -> str | None:
        """The path of the file's most recently used snapshot; None if there is none."""
        return max(self._found(file_id), default=(0, 0, None))[2]

    @contextlib.contextmanager
    def locked(self, file_id: str) -> Iterator[None]:
        """Hold the lock for fetching a file, so that other programs wait and then find it in the cache."""
        folder = os.path.join(self.folder, file_id)
        os.makedirs(folder, exist_ok=True)
        descriptor = copies.claim(os.path.join(folder, "lock"))
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
        """For each snapshot the time of its last use (ns), its size, and its path."""
        snapshots = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(os.path.join(self.folder, file_id)):
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat()
                    snapshots.append((status.st_mtime_ns, status.st_size, entry.path))
        return snapshots


_READ_ONLY: Final = 0o444


@dataclass(frozen=True, slots=True)
class Published:
    """A published snapshot, and the storage folder of its file."""

    storage: Storage
    manifest: Manifest

    @property
    def url(self) -> str:
        return self.storage.url


def published(
    url: str,
    snapshot: str | None = None,
    options: Mapping[str, object] | None = None,
    clock: Clock | None = None,
) -> list[Published]:
    """Return a snapshot of every file below `url`, or of the one file that `url` names, ordered by file id:
    the latest snapshot, or the one named `snapshot`. The content of the files is not read.

    Raises StorageError if there is no snapshot or it cannot be read, CorruptDatabaseError for a damaged
    snapshot, and ConfigError for a URL that fsspec cannot open.
    """
    name = LATEST if snapshot is None else f"{SNAPSHOTS}/{snapshot}.json"
    found: list[Published] = []

    def note(one: Published | None) -> None:
        if one is not None:
            found.append(one)

    each(lambda file: _of(file, name), _folders(Storage.open(url, options, clock)), note)
    if not found:
        raise StorageError(
            f"{url}: there is no published file{f' with a snapshot {snapshot}' if snapshot else ''}; "
            "publish one with `eosdb publish`"
        )
    return found


def files(url: str, options: Mapping[str, object] | None = None) -> list[str]:
    """Return the URLs of the files published below `url`, or of the one that it names, ordered by file id.

    Raises StorageError and ConfigError.
    """
    return [folder.url for folder in _folders(Storage.open(url, options))]


def is_file(url: str) -> bool:
    """Whether a URL names one published file, not a folder of published files."""
    return manifest.is_file_id(url.rstrip("/").rpartition("/")[2])


def _folders(storage: Storage) -> list[Storage]:
    if is_file(storage.url):
        return [storage]
    return [storage.inside(name) for name in sorted(filter(manifest.is_file_id, storage.listing()))]


def _of(file: Storage, name: str) -> Published | None:
    data = file.read(name)
    if data is None:
        return None  # The file is being published for the first time.
    found = manifest.parse(data, f"{file.url}/{name}")
    if found.file_id != file.url.rpartition("/")[2]:
        raise CorruptDatabaseError(f"{file.url}/{name} belongs to another file, {found.file_id}")
    return Published(file, found)


def fetch(
    url: str,
    target: str | os.PathLike[str] | None = None,
    *,
    snapshot: str | None = None,
    cache: Cache | None = None,
    storage_options: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    on_progress: Progress | None = None,
) -> str:
    """Download a snapshot of a file, the latest or the one named `snapshot`, and return the path of the
    local copy. Only blocks that an earlier copy does not have are downloaded. `on_progress(done, total)`
    counts bytes.

    `target` is replaced atomically. Without `target` the copy is in `cache`, and stays there as long as it
    is used. It is read-only: open it with `read_only=True`. Raises the errors of `published`,
    CorruptDatabaseError for a damaged chunk, and IllegalStateError if `url` has several files, or if
    `target` is a live file.
    """
    clock = clock or SystemClock()
    candidates = published(url, snapshot, storage_options, clock)
    if len(candidates) > 1:
        raise IllegalStateError(
            f"{url} has {len(candidates)} files; name one, such as {candidates[0].url}, or read them all "
            "with Spark"
        )
    chosen = candidates[0]
    path = None if target is None else check_path("target", target)

    def work(report: Progress) -> str:
        if path is None:
            return into_cache(chosen, cache or Cache.default(), clock, report)
        _check_replaceable(path)
        _put_together(chosen, path, f"{path}.unfinished", path, report)
        return path

    return report_progress(on_progress, work)


def into_cache(one: Published, cache: Cache, clock: Clock, report: Progress) -> str:
    """Fetch the snapshot unless it is in the cache, and return its path there."""
    found = one.manifest
    path = cache.path(found.file_id, found.name)
    try:
        with cache.locked(found.file_id):
            if not os.path.exists(path):
                unfinished = os.path.join(os.path.dirname(path), "unfinished")
                _put_together(one, path, unfinished, cache.newest(found.file_id), report)
            now_ns = clock.time_ms() * 1_000_000
            os.utime(path, ns=(now_ns, now_ns))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    cache.make_room(clock)
    return path


def _check_replaceable(path: str) -> None:
    """Check that the path is free or has a published copy: a file that may be live is not replaced.
    Raises IllegalStateError and StorageError."""
    try:
        start = head(path, FORMAT_AT.stop)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    if not start.startswith(b"SQLite format 3\0") or start[FORMAT_AT] != ROLLBACK_FORMAT:
        raise IllegalStateError(
            f"{path} exists and is not a published copy; it may be a live file, so give another path"
        )


def _put_together(
    source: Published, path: str, unfinished: str, previous: str | None, report: Progress
) -> None:
    """Assemble the file under the name `unfinished`, sync it, make it read-only, then rename it to `path`.
    Blocks of an interrupted attempt and of `previous` are reused."""
    hashes = _hashes(source)
    size = source.manifest.size
    try:
        with contextlib.ExitStack() as cleanup:
            with contextlib.suppress(OSError):
                os.chmod(unfinished, 0o600)  # An earlier attempt may have left it read-only.
            descriptor = copies.claim(unfinished)
            cleanup.callback(os.close, descriptor)
            os.ftruncate(descriptor, size)
            sources = [descriptor]
            if previous is not None and os.path.exists(previous):
                sources.append(cleanup.enter_context(open(previous, "rb")).fileno())
            missing = _missing(sources, hashes, size)
            _download(source, hashes, missing, descriptor, report)
            os.fchmod(descriptor, _READ_ONLY)
            road.sync(descriptor)
            os.rename(unfinished, path)
        sync_folder(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _hashes(one: Published) -> list[bytes]:
    name = f"{CHUNKS}/{one.manifest.hashes}"
    data = one.storage.read(name)
    if data is None:
        raise _gone(one, name)
    if manifest.digest(data) != one.manifest.hashes[:64]:
        raise _damaged(one, name)
    hashes = manifest.split_hashes(data)
    held = manifest.places(one.manifest.chunks)
    if len(hashes) != -(-one.manifest.size // BLOCK) or not held.keys() >= set(range(len(hashes))):
        raise _damaged(one, name)
    return hashes


def _missing(sources: list[int], hashes: list[bytes], size: int) -> list[int]:
    """The blocks that no source has at their offset. Copies all other blocks to the first source."""
    missing = []
    for block, expected in enumerate(hashes):
        for source in sources:
            data = os.pread(source, block_length(block, size), block * BLOCK)
            if manifest.block_hash(data) == expected:
                if source != sources[0]:
                    os.pwrite(sources[0], data, block * BLOCK)
                break
        else:
            missing.append(block)
    return missing


def _download(
    one: Published, hashes: list[bytes], missing: Collection[int], target: int, report: Progress
) -> None:
    size = one.manifest.size
    done = size - sum(block_length(block, size) for block in missing)
    report(done, size)

    def load(run: StoredRun) -> int:
        name = f"{CHUNKS}/{run.name}"
        start = run.at * BLOCK
        length = sum(block_length(block, size) for block in run.blocks)
        data = one.storage.read(name, start, start + length)
        if data is None:
            raise _gone(one, name)
        for index, block in enumerate(run.blocks):
            part = data[index * BLOCK : index * BLOCK + block_length(block, size)]
            if manifest.block_hash(part) != hashes[block]:
                raise _damaged(one, name)
            os.pwrite(target, part, block * BLOCK)
        return length

    def note(length: int) -> None:
        nonlocal done
        done += length
        report(done, size)

    each(load, list(manifest.runs(missing, one.manifest.chunks)), note)


def _gone(one: Published, name: str) -> StorageError:
    return StorageError(
        f"{one.url}/{name} is gone: either the snapshot {one.manifest.name} has been replaced by newer "
        "ones, then fetch the latest, or it has lost a chunk, then publish the file again"
    )


def _damaged(one: Published, name: str) -> CorruptDatabaseError:
    return CorruptDatabaseError(
        f"{one.url}/{name} is damaged: its content does not fit the checksum in the snapshot "
        f"{one.manifest.name}; publish the whole file anew (`eosdb publish --anew`)"
    )
