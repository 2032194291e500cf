"""In a folder that others may write to, a link that waits for us leads no write of ours to its target."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import eosdb
from eosdb import StorageError
from eosdb.integrations.publishing.fetching import fetch


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.txt"
    path.write_text("nobody may touch this")
    return path


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", "-lock"])
@pytest.mark.parametrize("how", ["new", "there", "read only"])
def test_a_link_beside_a_file_is_refused(
    tmp_path: Path, precious: Path, suffix: str, how: str
) -> None:
    path = tmp_path / "shop.db"
    if how != "new":
        eosdb.connect(path).close()
    beside = path.with_name(path.name + suffix)
    beside.unlink(missing_ok=True)
    beside.symlink_to(precious)
    with pytest.raises(StorageError, match=f"{suffix} is a symbolic link"):
        eosdb.connect(path, read_only=how == "read only")
    assert precious.read_text() == "nobody may touch this"
    beside.unlink()
    eosdb.connect(path).close()


def test_a_copy_that_is_being_made_follows_no_link(tmp_path: Path, precious: Path) -> None:
    path, target = tmp_path / "shop.db", tmp_path / "copy.db"
    with eosdb.connect(path) as db:
        (tmp_path / "shop.db.publishing").symlink_to(precious)
        with pytest.raises(StorageError, match=r"shop\.db\.publishing cannot be written"):
            db.publish_copy(f"file://{tmp_path}/published")
        (tmp_path / "shop.db.publishing").unlink()
        db.publish_copy(f"file://{tmp_path}/published")
    (tmp_path / "copy.db.unfinished").symlink_to(precious)
    with pytest.raises(StorageError, match=r"copy\.db cannot be written"):
        fetch(f"file://{tmp_path}/published", target)
    assert precious.read_text() == "nobody may touch this"


def test_a_link_that_leads_to_the_file_is_no_trap(tmp_path: Path) -> None:
    """Its companions are beside the file, not beside the link."""
    (tmp_path / "data").mkdir()
    (tmp_path / "shop.db").symlink_to(tmp_path / "data/shop.db")
    eosdb.connect(tmp_path / "shop.db").close()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "shop.db"}
    shutil.rmtree(tmp_path / "data")
