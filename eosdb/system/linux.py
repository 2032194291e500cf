"""Linux's road: open-file-description locks on bytes of one file, inotify, /proc and /dev/shm."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from eosdb.system.lock_file import LockFile, open_lock_file
from eosdb.system.mount import Mount

DESCRIPTORS: Final = "/proc/self/fd"
LOCK_FILES: Final = ()
_FLOCK: Final = "hhqqi4x"
_OWNERS_AT: Final = 4096
"""From here on each byte is an owner's lock; locking bytes does not make the file grow."""
_SHARED_MEMORY: Final = "-shm"
_IN_MODIFY: Final = 0x2
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK
_libc: Final = ctypes.CDLL(None, use_errno=True)

# -- locks ---------------------------------------------------------------------------------------


def _bytes(kind: int, byte: int, length: int = 1) -> bytes:
    """Build the `flock` structure for these bytes; `kind` is F_WRLCK or F_UNLCK."""
    return struct.pack(_FLOCK, kind, os.SEEK_SET, byte, length, 0)


_LOCK: Final = (_bytes(fcntl.F_WRLCK, 0), _bytes(fcntl.F_WRLCK, 1))
_UNLOCK: Final = (_bytes(fcntl.F_UNLCK, 0), _bytes(fcntl.F_UNLCK, 1))
_UNLOCK_BOTH: Final = _bytes(fcntl.F_UNLCK, 0, 2)


class _Bytes(LockFile):
    """Writer locks and owner locks: bytes of one file, locked by one descriptor."""

    @property
    def files(self) -> Sequence[LockFile]:
        return (self,)

    def try_lock(self, lock: int) -> bool:
        try:
            fcntl.fcntl(self, fcntl.F_OFD_SETLK, _LOCK[lock])
        except (BlockingIOError, PermissionError):
            return False
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
    """Whether a lock of another descriptor conflicts with the one requested."""
    conflict = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
    return bool(struct.unpack_from("h", conflict)[0] != fcntl.F_UNLCK)


def writer_locks(path: str) -> _Bytes:
    return open_lock_file(path, _Bytes)


owner_file: Final = writer_locks


def inherited() -> frozenset[tuple[int, int]]:
    """The databases that SQLite has open, recognised by their open shared memory."""
    files = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{DESCRIPTORS}/{descriptor}")
                if target.endswith(_SHARED_MEMORY):
                    status = os.stat(target.removesuffix(_SHARED_MEMORY))
                    files.add((status.st_dev, status.st_ino))
    return frozenset(files)


# -- waiting, memory, the disk -------------------------------------------------------------------


def watched(path: str) -> int:
    if not hasattr(_libc, "inotify_init1"):
        return -1
    descriptor: int = _libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return -1
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return -1
    return descriptor


def memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def reserve(descriptor: int, size: int) -> None:
    os.posix_fallocate(descriptor, 0, size)


def drop_cached(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


# -- mounts --------------------------------------------------------------------------------------


def mount_points(_: str) -> set[str]:
    return listed_points(_mountinfo())


def mount_of(folder: str) -> Mount | None:
    return find_mount(_mountinfo(), os.stat(folder).st_dev)


def find_mount(mountinfo: str, device: int) -> Mount | None:
    """Find the file system with this `st_dev` in the text of `/proc/self/mountinfo`; None if it is not
    listed, as for a subvolume of btrfs."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 2 and fields[2] == wanted:
            type_, source, options = (*after.split(" "), "", "", "")[:3]
            return Mount(type_, _unescaped(source), options)
    return None


def listed_points(mountinfo: str) -> set[str]:
    """Every path at which something is mounted."""
    lines = (line.split(" ") for line in mountinfo.splitlines())
    return {_unescaped(fields[4]) for fields in lines if len(fields) > 4}


def _mountinfo() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
