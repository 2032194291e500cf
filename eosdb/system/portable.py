"""The portable implementation: each lock is a file locked by `flock`, and waiting is polling.

It is used on macOS, and on Linux with EOSDB_PORTABLE=1. A lock file is not removed while its lock may be
held. This module never opens the database file: closing it would drop SQLite's locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count, repeat
from typing import Final

from eosdb.system import posix_locks
from eosdb.system.descriptors import open_files
from eosdb.system.lock_file import QUEUE, WRITER, LockFile, open_lock_file
from eosdb.system.mount import Mount

if sys.platform == "linux":
    from eosdb.system import linux

IS_PORTABLE: Final = True
LOCK_FILES: Final = ("-queue", "-writer")
OWNER: Final = "-owner-"
_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_RANGE: Final = struct.Struct("<qq")
"""The entry in an owner's file for each `hold`: the first number and the count, which is 0 after `drop`."""
_SEEN: Final = 1_000
_MOUNTED: Final = re.compile(
    r"(?P<source>.*) on (?P<point>/.*?) "
    r"(?:type (?P<linux>\S+) \(|\((?P<mac>[^,)]+)(?:, )?)(?P<options>[^)]*)\)(?: \[.*\])?"
)
"""A line of `mount`: `/dev/vda on / type ext4 (rw)`, or on macOS `/dev/disk3s1 on / (apfs, local)`."""

# -- locks ---------------------------------------------------------------------------------------


class _Files:
    """The writer locks of one opener. The first file stores facts for all processes and is not locked."""

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._seen: Final[dict[int, str]] = {}
        """The owner file in which each number was found."""
        opened: list[LockFile] = []
        self.files: Final[Sequence[LockFile]] = opened
        try:
            opened.append(_facts(path))
            opened.extend(open_lock_file(path + suffix, LockFile) for suffix in LOCK_FILES)
        except BaseException:
            for file in opened:
                file.close()
            raise
        self._locks: Final = opened[1:]

    def try_writer(self) -> bool:
        try:
            return self.try_lock(QUEUE) and self.try_lock(WRITER)
        finally:
            self.unlock(QUEUE)

    def try_lock(self, lock: int) -> bool:
        try:
            fcntl.flock(self._locks[lock], _TRY)
        except BlockingIOError:
            return False
        self._sign(lock)
        return True

    def lock(self, lock: int) -> None:
        fcntl.flock(self._locks[lock], fcntl.LOCK_EX)
        self._sign(lock)

    def _sign(self, lock: int) -> None:
        """Store this process's id in the locked file, for `holders`."""
        with contextlib.suppress(OSError):
            os.pwrite(self._locks[lock].fileno(), b"%-20d" % os.getpid(), 0)

    def unlock(self, lock: int) -> None:
        fcntl.flock(self._locks[lock], fcntl.LOCK_UN)

    def releaser(self) -> Callable[[], object]:
        # decisions/0018: one call into C unlocks both files: `next` takes an item of each iterator.
        unlocking = (map(fcntl.flock, repeat(file), repeat(fcntl.LOCK_UN)) for file in self._locks)
        return partial(next, zip(*unlocking, strict=False))

    def is_owned(self, number: int) -> bool:
        name = self._seen.get(number)
        if name is not None and _has(name, number):
            return True
        for name in _owner_files(self._path):
            if _has(name, number):
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen[number] = name
                return True
        return False


def writer_locks(path: str) -> _Files:
    return _Files(path)


def is_owned(path: str, number: int) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with LockFile(descriptor, "r") as file:
        if sys.platform == "linux" and linux.is_on_road(file, is_portable=False):
            return True
        return any(_has(name, number, removes=False) for name in _owner_files(path))


def _facts(path: str) -> LockFile:
    file = open_lock_file(path, LockFile)
    if sys.platform == "linux":
        try:
            linux.keep_out_other_road(file, is_portable=True)
        except BaseException:
            file.close()
            raise
    return file


def shared_lock(_path: str, _first: int, _count: int) -> None:
    return None


class _Owners:
    """The owner locks of one opener: a locked file with the numbers that it holds. `close` removes the
    file. After a crash, the next opener that finds it unlocked removes it."""

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._file = _locked_anew(path)
        self._places: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self._dropped: list[int] = []
        self._fresh: Final = count(step=_RANGE.size)

    def hold(self, number: int, count: int) -> None:
        place = self._free.pop() if self._free else next(self._fresh)
        self._places[number, count] = place
        os.pwrite(self._file.fileno(), _RANGE.pack(number, count), place)
        # The number is stored before the check, so of two openers at once at least one sees the other's.
        others = (name for name in _owner_files(self._path) if name != self._file.path)
        if any(_has(name, number, count) for name in others):
            self.drop(number, count)
            raise BlockingIOError(f"another opener of {self._path} holds {number}")

    def drop(self, number: int, count: int) -> None:
        place = self._places.pop((number, count), None)
        if place is not None:
            self._dropped.append(place)
        # If a full disk prevents wiping the number, others see it as held until the next call or the end.
        with contextlib.suppress(IndexError):  # Another thread was first.
            for _ in range(len(self._dropped)):
                self._wipe(self._dropped.pop())

    def _wipe(self, place: int) -> None:
        try:
            os.pwrite(self._file.fileno(), _RANGE.pack(0, 0), place)
        except OSError:
            self._dropped.append(place)
        else:
            self._free.append(place)

    def close(self) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.unlink(self._file.path)
            self._file.close()


owner_file: Final = _Owners


def _locked_anew(path: str) -> LockFile:
    while True:
        file = open_lock_file(f"{path}{OWNER}{secrets.token_hex(8)}", LockFile)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # Another process took the file, not yet locked, for a dead opener's, and removed it.


def _owner_files(path: str) -> Iterator[str]:
    folder, name = os.path.split(path)
    for entry in os.listdir(folder or "."):
        if entry.startswith(name + OWNER):
            yield os.path.join(folder, entry)


def _has(name: str, number: int, count: int = 1, *, removes: bool = True) -> bool:
    """Whether a live opener's file has one of these numbers. If `removes`, the file of a dead opener is
    removed."""
    stored = _stored(name, removes=removes)
    whole = stored[: len(stored) // _RANGE.size * _RANGE.size]
    return any(
        first < number + count and number < first + held
        for first, held in _RANGE.iter_unpack(whole)
    )


def _stored(name: str, *, removes: bool = False) -> bytes:
    """Return the content of a locked file; empty if the file is unlocked or absent."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        with contextlib.suppress(BlockingIOError):
            # A shared lock, so that another reader's test does not look like the holder's lock.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if removes:
                with contextlib.suppress(OSError):
                    os.unlink(name)
            return b""
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


def holders(path: str, locked: Collection[int]) -> Sequence[int]:
    with contextlib.suppress(OSError):
        if all(lock < len(LOCK_FILES) for lock in locked):
            pids = [_stored(path + LOCK_FILES[lock]).decode() for lock in locked]
        else:
            program = [sys.executable, "-I", "-S", posix_locks.__file__, path]
            pids = _output([*program, *map(str, locked)]).split()
        return sorted({int(pid or 0) for pid in pids} - {0})
    return ()


def process(pid: int) -> tuple[str, bool]:
    state, *words = _output(["ps", "-o", "stat=", "-o", "args=", "-p", str(pid)]).split() or [""]
    return " ".join(words), state.startswith("T")


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return ""
    return done.stdout.decode(errors="surrogateescape")


def inherited() -> frozenset[tuple[int, int]]:
    """Return every open file of this process, which includes SQLite's."""
    with contextlib.suppress(OSError):
        return frozenset((status.st_dev, status.st_ino) for _, status in open_files())
    return frozenset()


# -- waiting, memory, the disk -------------------------------------------------------------------


def watched(_: str) -> None:
    return None


def memory_folder() -> str | None:
    return None


def sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        # On macOS fsync leaves the data in the disk's cache. Some file systems lack F_FULLFSYNC.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def reserve(descriptor: int, size: int) -> None:
    os.pwrite(descriptor, b"\0", size - 1)


def drop_cached(_: int) -> None:
    return None


# -- mounts --------------------------------------------------------------------------------------


def mounts(folder: str) -> tuple[set[str], Mount | None]:
    with contextlib.suppress(OSError):
        listed = listed_mounts(_mounted(os.stat(folder).st_dev))
        return {point for point, _ in listed}, find_mount(listed, os.path.realpath(folder))
    return set(), None


def find_mount(mounts: Sequence[tuple[str, Mount]], folder: str) -> Mount | None:
    """Find the file system of the folder: the mount point with the longest matching path."""
    above = [
        (len(at), mount) for at, mount in mounts if f"{folder}/".startswith(f"{at.rstrip('/')}/")
    ]
    return max(above, key=lambda row: row[0])[1] if above else None


def listed_mounts(text: str) -> list[tuple[str, Mount]]:
    lines = filter(None, map(_MOUNTED.fullmatch, text.splitlines()))
    return [
        (line["point"], Mount(line["linux"] or line["mac"], line["source"], line["options"]))
        for line in lines
    ]


@lru_cache(maxsize=64)
def _mounted(_device: int) -> str:
    """Return the output of `mount`; cached for each device, since starting a program takes milliseconds."""
    return _output(["mount"])
