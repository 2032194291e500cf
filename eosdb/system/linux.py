"""The Linux implementation: open-file-description locks on bytes of one file, inotify, /proc, /dev/shm."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from functools import lru_cache, partial
from io import FileIO
from typing import Final

from eosdb.errors import IllegalStateError
from eosdb.system.descriptors import FOLDER
from eosdb.system.lock_file import QUEUE, LockFile, closed_in_child, open_lock_file
from eosdb.system.mount import Mount

assert sys.platform == "linux"
IS_PORTABLE: Final = False
LOCK_FILES: Final = ()
_FLOCK: Final = "hhqqi4x"
_ROADS: Final = (2, 3)
"""Openers with this implementation have a shared lock on the first byte, portable ones on the second."""
_OWNERS_AT: Final = 4096
"""Each byte from here on is an owner's lock; locking bytes does not make the file grow."""
_SHARED_MEMORY: Final = "-shm"
_PROCESSES: Final = "/proc"
_MOUNTS: Final = "/proc/self/mountinfo"
_STOPPED: Final = ("T", "t")
_IN_MODIFY: Final = 0x2
_IN_IGNORED: Final = 0x8000
"""The last notice of a file that was removed."""
_EVENT: Final = struct.Struct("iIII")
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK
_libc: Final = ctypes.CDLL(None, use_errno=True)

# -- locks ---------------------------------------------------------------------------------------


def _bytes(kind: int, byte: int, length: int = 1) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, length, 0)


_LOCK: Final = (_bytes(fcntl.F_WRLCK, 0), _bytes(fcntl.F_WRLCK, 1))
_UNLOCK: Final = (_bytes(fcntl.F_UNLCK, 0), _bytes(fcntl.F_UNLCK, 1))
_LOCK_BOTH: Final = _bytes(fcntl.F_WRLCK, 0, 2)
_UNLOCK_BOTH: Final = _bytes(fcntl.F_UNLCK, 0, 2)


class _Bytes(LockFile):
    """The writer locks and owner locks of one opener: it locks bytes of one file through one descriptor."""

    @property
    def files(self) -> Sequence[LockFile]:
        return (self,)

    def try_writer(self) -> bool:
        try:
            fcntl.fcntl(self, fcntl.F_OFD_SETLK, _LOCK_BOTH)
        except (BlockingIOError, PermissionError):
            return False
        self.unlock(QUEUE)
        return True

    def lock(self, lock: int) -> None:
        fcntl.fcntl(self, fcntl.F_OFD_SETLKW, _LOCK[lock])

    def unlock(self, lock: int) -> None:
        fcntl.fcntl(self, fcntl.F_OFD_SETLK, _UNLOCK[lock])

    def releaser(self) -> Callable[[], object]:
        return partial(fcntl.fcntl, self, fcntl.F_OFD_SETLK, _UNLOCK_BOTH)

    def is_owned(self, number: int) -> bool:
        return _is_locked(self, _bytes(fcntl.F_WRLCK, _OWNERS_AT + number))

    def hold(self, number: int, count: int) -> None:
        try:
            wanted = _bytes(fcntl.F_WRLCK, _OWNERS_AT + number, count)
            fcntl.fcntl(self, fcntl.F_OFD_SETLK, wanted)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

    def drop(self, number: int, count: int) -> None:
        held = _bytes(fcntl.F_UNLCK, _OWNERS_AT + number, count)
        fcntl.fcntl(self, fcntl.F_OFD_SETLK, held)


def _is_locked(file: LockFile, wanted: bytes) -> bool:
    conflict = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
    return bool(struct.unpack_from("h", conflict)[0] != fcntl.F_UNLCK)


def writer_locks(path: str) -> _Bytes:
    file = open_lock_file(path, _Bytes)
    try:
        keep_out_other_road(file, is_portable=False)
    except BaseException:
        file.close()
        raise
    return file


owner_file: Final = writer_locks


def is_owned(path: str, number: int) -> bool:
    with _Bytes(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "r") as file:
        return file.is_owned(number) or is_on_road(file, is_portable=True)


def is_on_road(file: LockFile, *, is_portable: bool) -> bool:
    """Whether another opener has the file open with this implementation."""
    return _is_locked(file, _bytes(fcntl.F_WRLCK, _ROADS[is_portable]))


class _Shared(LockFile):
    """A shared lock on bytes of a file of SQLite's."""

    def __init__(self, path: str, first: int, count: int) -> None:
        kind = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
        super().__init__(os.open(path, kind | os.O_CLOEXEC), "r")
        self.lock: Final = partial(self._set, _bytes(fcntl.F_RDLCK, first, count))
        self.unlock: Final = partial(self._set, _bytes(fcntl.F_UNLCK, first, count))

    def _set(self, wanted: bytes) -> None:
        fcntl.fcntl(self, fcntl.F_OFD_SETLK, wanted)

    def retake(self, byte: int) -> bool:
        try:
            fcntl.lockf(self, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        return True


def shared_lock(path: str, first: int, count: int) -> _Shared:
    return closed_in_child(_Shared(path, first, count), path)


# decisions/0061: locks of the two implementations do not exclude each other, so a file uses only one.
def keep_out_other_road(file: LockFile, *, is_portable: bool) -> None:
    """Take a lock that shows other openers this opener's implementation. Raises IllegalStateError if the
    file is open with the other implementation."""
    # Look before locking, too: the lock of an attempt that then fails would block the openers of the file.
    if not is_on_road(file, is_portable=not is_portable):
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _bytes(fcntl.F_RDLCK, _ROADS[is_portable]))
        if not is_on_road(file, is_portable=not is_portable):
            return
    without = ("with", "without") if is_portable else ("without", "with")
    raise IllegalStateError(
        f"{file.path.removesuffix('-lock')} is open in a program that runs {without[1]} EOSDB_PORTABLE=1, "
        f"but this program runs {without[0]} it, so their locks differ. Nothing was written; set it for "
        "every program that opens the file, or for none"
    )


def inherited() -> frozenset[tuple[int, int]]:
    """Return the databases whose shared memory this process has open."""
    files = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(FOLDER):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{FOLDER}/{descriptor}")
                if target.endswith(_SHARED_MEMORY):
                    status = os.stat(target.removesuffix(_SHARED_MEMORY))
                    files.add((status.st_dev, status.st_ino))
    return frozenset(files)


# -- who holds a lock ----------------------------------------------------------------------------


def holders(path: str, locked: Collection[int]) -> Sequence[int]:
    """Read the holders of SQLite's locks from `/proc/locks`. It does not name holders of
    open-file-description locks; for this user's processes, `/proc/PID/fdinfo` does. The file itself is not
    opened, since closing it would drop SQLite's locks."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = _listed(status.st_ino, locked)
    found = {int(line[4]) for line in lines if line[5] == file} - {-1}
    if lines and not found:  # Otherwise it is not worth the time.
        found = {pid for pid in _numbers(_PROCESSES) if _holds(pid, status, locked)}
    return sorted(found)


def _listed(inode: int, locked: Collection[int]) -> list[list[str]]:
    """Return the lines of `/proc/locks` such as `1: POSIX ADVISORY WRITE 4711 08:01:131 120 120` for this
    inode, on any device: btrfs has another one here than in `stat`. Open-file-description locks have the
    holder -1; lines of waiting processes have an extra `->`."""
    lines = [line.split() for line in _read(f"{_PROCESSES}/locks").splitlines()]
    of_file = [line for line in lines if len(line) == 8 and line[5].endswith(f":{inode}")]
    return [line for line in of_file if _covers(line, locked)]


def _holds(pid: int, status: os.stat_result, locked: Collection[int]) -> bool:
    process = f"{_PROCESSES}/{pid}"
    return any(
        _is_same(f"{process}/fd/{descriptor}", status)
        and _has_lock(f"{process}/fdinfo/{descriptor}", locked)
        for descriptor in _numbers(f"{process}/fd")
    )


def _numbers(folder: str) -> Iterator[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def _is_same(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return False


def _has_lock(path: str, locked: Collection[int]) -> bool:
    """Whether the `fdinfo` file at `path` lists a lock of one of these bytes: a line such as `lock: 1:
    OFDLCK ADVISORY WRITE 0 08:01:131 1 1`, which ends with the first and last byte."""
    lines = [line.split() for line in _read(path).splitlines() if line.startswith("lock:")]
    return any(_covers(line, locked) for line in lines)


def _covers(line: list[str], locked: Collection[int]) -> bool:
    *_, first, last = line
    return any(int(first) <= byte and (last == "EOF" or byte <= int(last)) for byte in locked)


def process(pid: int) -> tuple[str, bool]:
    command = " ".join(_read(f"{_PROCESSES}/{pid}/cmdline").replace("\0", " ").split())
    state = _read(f"{_PROCESSES}/{pid}/stat").rpartition(")")[2].split()
    return command, bool(state) and state[0] in _STOPPED


def _read(path: str, errors: str = "replace") -> str:
    try:
        with open(path, encoding="utf-8", errors=errors) as file:
            return file.read()
    except OSError:
        return ""


# -- waiting, memory, the disk -------------------------------------------------------------------


class _Notices(FileIO):
    __del__ = FileIO.close

    def take(self) -> bool:
        events = self.read(4_096) or b""
        return not any(mask & _IN_IGNORED for _, mask, _, _ in _EVENT.iter_unpack(events))


def watched(path: str) -> _Notices | None:
    if not hasattr(_libc, "inotify_init1"):
        return None
    descriptor: int = _libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return None
    notices = _Notices(descriptor)
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        notices.close()
        return None
    return notices


def memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def reserve(descriptor: int, size: int) -> None:
    os.posix_fallocate(descriptor, 0, size)


def drop_cached(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


# -- mounts --------------------------------------------------------------------------------------


def mounts(folder: str) -> tuple[Set[str], Mount | None]:
    text = _read(_MOUNTS, "surrogateescape")
    mount = None
    with contextlib.suppress(OSError):
        mount = find_mount(text, os.stat(folder).st_dev)
    return listed_points(text), mount


@lru_cache(maxsize=64)
def find_mount(mountinfo: str, device: int) -> Mount | None:
    """Find the file system of this `st_dev` in the text of `/proc/self/mountinfo`; None if it is not
    listed, as for a subvolume of btrfs."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ", 3)[2:3] == [wanted]:
            type_, source, options = (*after.split(" "), "", "", "")[:3]
            return Mount(type_, _unescaped(source), options)
    return None


@lru_cache(maxsize=1)
def listed_points(mountinfo: str) -> frozenset[str]:
    lines = (line.split(" ", 5) for line in mountinfo.splitlines())
    return frozenset(_unescaped(fields[4]) for fields in lines if len(fields) > 4)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
