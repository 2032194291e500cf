"""Which file systems can hold a writable file: those whose shared memory and locks are kept by one
kernel.

The WAL's index is shared memory. On a network file system every host has its own, so two hosts would
overwrite each other's pages without noticing. A file that is itself a mount point has another WAL and
other locks than the same file under its original name.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from eosdb.errors import StorageError

ALLOW: Final = "EOSDB_ALLOW_NETWORK_FILE_SYSTEM"
"""Environment variable; `1` asserts that only this host has the file open."""
BESIDE: Final = ("-wal", "-shm", "-lock")
"""Suffixes of the files that exist beside the database while it is open."""
_NETWORK: Final = frozenset({
    "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "smb3", "smbfs",
})  # fmt: skip


class Mount(NamedTuple):
    """The type, source and options of a mounted file system."""

    type: str
    source: str
    options: str

    @property
    def is_shared(self) -> bool:
        """Whether another host, or Windows beside WSL, may have the files open, too. 9p alone does not
        tell: sandboxes (gVisor) have their own disk on it."""
        return self.type in _NETWORK or (
            self.type == "9p" and "drvfs" in self.source + self.options
        )


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


def mount_points(mountinfo: str) -> set[str]:
    """Every path at which something is mounted."""
    lines = (line.split(" ") for line in mountinfo.splitlines())
    return {_unescaped(fields[4]) for fields in lines if len(fields) > 4}


def mounted_name(path: str) -> str | None:
    """Return the file of the database at `path` (links resolved) that is itself a mount point, if any."""
    mounted = mount_points(_mountinfo())
    names = (path + suffix for suffix in ("", *BESIDE))
    return next((name for name in names if os.path.realpath(name) in mounted), None)


def mounted_error(name: str, path: str) -> StorageError:
    folder, file = os.path.split(path)
    return StorageError(
        f"{name} is a mount point (`docker run -v FILE:{name}`, `mount --bind`). What SQLite keeps beside "
        f"{file} ({', '.join(file + suffix for suffix in BESIDE)}) is then not that of the same file "
        "elsewhere: what is acknowledged here would be lost there. Mount the folder that holds the file "
        f"instead, such as `-v FOLDER:{folder}`"
    )


def check_local(path: str) -> None:
    """Raises StorageError if the file at `path` may be written elsewhere under other locks: by another
    host, or under its original name if it is a mount point itself."""
    if (name := mounted_name(path)) is not None:
        raise mounted_error(name, path)
    # decisions/0053: no lock would tell.
    if os.environ.get(ALLOW) == "1":
        return
    try:
        device = os.stat(os.path.dirname(path) or ".").st_dev
    except OSError:
        return
    mount = find_mount(_mountinfo(), device)
    if mount is not None and mount.is_shared:
        raise StorageError(
            f"{path} is on a network file system ({mount.type}, from {mount.source}), where SQLite's "
            "write-ahead log cannot be shared between hosts. Put it on a disk of this host, and let others "
            f"use `eosdb serve`, or a copy by `eosdb publish`; where only this host opens it, set {ALLOW}=1"
        )


def _mountinfo() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
