"""A file that is mounted by itself: what SQLite and eosdb keep beside it is not that of the same file under
its other name. A folder may be mounted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.store.file.file_system import LOCKS
from eosdb.system import linux
from eosdb.system.road import road
from tests.programs import ended

MOUNTS = r"""
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
501 27 254:0 /home/me/shop.db /app/shop.db rw,relatime - ext4 /dev/vda rw
502 27 254:0 /home/me/data /data rw,relatime - ext4 /dev/vda rw
503 27 254:0 /home/me/my\040shop.db /srv/my\040shop.db rw,relatime - ext4 /dev/vda rw
"""


def test_the_system_says_what_is_mounted() -> None:
    assert linux.listed_points(MOUNTS) == {"/", "/app/shop.db", "/data", "/srv/my shop.db"}


@pytest.fixture
def mounted(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is mounted there is what the fixture's path has added to it: `mounted.write_text`."""
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.publish_copy(db_path.with_name("copy.db"))
    return db_path


def say_mounted(monkeypatch: pytest.MonkeyPatch, name: Path | str) -> None:
    monkeypatch.setattr(road, "mounts", lambda _: ({str(name)}, None))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", *LOCKS])
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("through", ["name", "link", "linked folder"])
def test_a_file_that_is_a_mount_point_is_refused_and_the_folder_named(
    mounted: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    suffix: str,
    read_only: bool,
    through: str,
) -> None:
    path = mounted
    if through == "link":
        path = mounted.with_name("link.db")
        path.symlink_to(mounted)
    elif through == "linked folder":
        (tmp_path / "elsewhere").symlink_to(mounted.parent)
        path = tmp_path / "elsewhere" / mounted.name
    say_mounted(monkeypatch, f"{mounted}{suffix}")
    before = sorted(mounted.parent.iterdir())
    with pytest.raises(
        eosdb.StorageError, match=f"{suffix} is a mount point.*-v FOLDER:{mounted.parent}"
    ):
        eosdb.connect(path, read_only=read_only)
    assert sorted(mounted.parent.iterdir()) == before, "nothing was put beside it"


def test_another_applications_file_is_not_adopted_there(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_mounted(monkeypatch, db_path)
    with pytest.raises(eosdb.StorageError, match="is a mount point"):
        eosdb.connect(db_path, adopt=True)


def test_a_published_copy_that_is_mounted_is_read(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never changes, and has nothing beside it."""
    copy = mounted.with_name("copy.db")
    say_mounted(monkeypatch, copy)
    with eosdb.connect(copy, read_only=True) as db:
        assert "t" in db.admin.list_topics()


def test_a_folder_that_is_mounted_is_fine(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_mounted(monkeypatch, mounted.parent)
    with eosdb.connect(mounted) as db:
        assert db.verify().ok


_MOUNTED = """
import subprocess, sys
import eosdb
source, target, kind = sys.argv[1:]
subprocess.run(["mount", "--bind", source, target], check=True)
path = target + "/shop.db" if kind == "folder" else target
for read_only in (False, True):
    try:
        with eosdb.connect(path, read_only=read_only) as db:
            print("t" in db.admin.list_topics())
    except eosdb.StorageError as error:
        print("is a mount point" in str(error) and "refused")
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_real_bind_mount(tmp_path: Path, kind: str) -> None:
    """In a mount namespace of its own, which ends with the program."""
    data, other = tmp_path / "data", tmp_path / "app"
    for folder in (data, other):
        folder.mkdir()
    with eosdb.connect(data / "shop.db") as db:
        db.admin.create_topic("t")
    (other / "shop.db").touch()
    source, target = (data, other) if kind == "folder" else (data / "shop.db", other / "shop.db")
    command = ["unshare", "--mount", sys.executable, "-c", _MOUNTED, str(source), str(target), kind]
    done = ended(command)
    if "ermission denied" in done.stderr or "not permitted" in done.stderr:
        pytest.skip(f"NOT TESTED: nothing can be mounted here ({done.stderr.strip()})")
    assert done.returncode == 0, done.stderr
    expected = "True" if kind == "folder" else "refused"
    assert done.stdout.split("\n")[:2] == [expected, expected]
