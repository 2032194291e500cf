"""A mounted file system, and whether other hosts use its files."""

from __future__ import annotations

from typing import Final, NamedTuple

_NETWORK: Final = frozenset({
    "afpfs", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "macfuse", "ncpfs",
    "nfs", "nfs4", "ocfs2", "osxfuse", "smb3", "smbfs", "webdav",
})  # fmt: skip


class Mount(NamedTuple):
    """The type, source and options of a mounted file system."""

    type: str
    source: str
    options: str

    @property
    def is_shared(self) -> bool:
        """Whether another host, or Windows outside of WSL, may have the files open. The type 9p alone does
        not show this: sandboxes (gVisor) use it for their own disk."""
        return self.type in _NETWORK or (
            self.type == "9p" and "drvfs" in self.source + self.options
        )
