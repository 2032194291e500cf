"""A file that another host may write too is refused; this machine's own file systems are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eosdb
from eosdb.errors import StorageError
from eosdb.store.file import file_system
from eosdb.system import linux
from eosdb.system.mount import Mount
from eosdb.system.road import road

MOUNTS = r"""
21 27 0:20 / /proc rw,nosuid - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:51 / /home rw,relatime shared:7 master:2 - nfs4 files:/export/my\040home rw,vers=4.2
41 27 0:52 / /mnt/share rw - cifs //files/share rw,vers=3.1.1
42 27 0:53 / /mnt/c rw,noatime - 9p C:\134 rw,aname=drvfs;path=C:\134;uid=1000
43 27 0:54 / /sandbox rw - 9p none rw,trans=fd
44 27 0:55 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/a,upperdir=/b
45 27 0:56 / /dev/shm rw - tmpfs shm rw
46 27 0:57 / /remote rw - fuse.sshfs me@there:/ rw
"""


@pytest.mark.parametrize(
    ("device", "type_", "source", "is_shared"),
    [
        ((254, 0), "ext4", "/dev/vda", False),
        ((0, 51), "nfs4", "files:/export/my home", True),
        ((0, 52), "cifs", "//files/share", True),
        ((0, 53), "9p", "C:\\", True),
        ((0, 54), "9p", "none", False),
        ((0, 55), "overlay", "overlay", False),
        ((0, 56), "tmpfs", "shm", False),
        ((0, 57), "fuse.sshfs", "me@there:/", True),
    ],
)
def test_a_mount_says_whether_other_hosts_have_its_files(
    device: tuple[int, int], type_: str, source: str, is_shared: bool
) -> None:
    found = linux.find_mount(MOUNTS, os.makedev(*device))
    assert found is not None
    assert (found.type, found.source, found.is_shared) == (type_, source, is_shared)


def test_a_device_that_no_mount_names_is_not_guessed_at() -> None:
    assert linux.find_mount(MOUNTS, os.makedev(0, 99)) is None


@pytest.fixture
def on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount("nfs4", "files:/export", "rw")
    monkeypatch.setattr(road, "mounts", lambda _: (set(), mount))


@pytest.mark.usefixtures("on_nfs")
def test_a_file_on_a_network_file_system_is_refused_with_what_to_do(db_path: Path) -> None:
    with pytest.raises(StorageError, match=r"\(nfs4, from files:/export\).*EOSDB_ALLOW_NETWORK"):
        eosdb.connect(db_path)
    assert list(db_path.parent.iterdir()) == []


@pytest.mark.usefixtures("on_nfs")
def test_who_says_that_only_this_host_has_it_may_write_there(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(file_system.ALLOW, "1")
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        assert db.verify().ok


def test_a_published_copy_is_read_there_and_a_file_that_is_written_is_not(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = db_path.with_name("copy.db")
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.publish_copy(copy)
        mount = Mount("nfs4", "files:/export", "rw")
        monkeypatch.setattr(road, "mounts", lambda _: (set(), mount))
        with eosdb.connect(copy, read_only=True) as copied:
            assert "t" in copied.admin.list_topics()
        with pytest.raises(StorageError, match="network file system"):
            eosdb.connect(db_path, read_only=True)


@pytest.mark.parametrize("folder", ["/dev/shm", "."])
def test_the_file_systems_of_this_machine_are_accepted(folder: str) -> None:
    file_system.check_local(os.path.join(os.path.realpath(folder), "shop.db"))
