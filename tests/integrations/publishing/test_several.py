"""Several publishers of one file, readers among them, older copies, and a bounded cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock
from eosdb.integrations import publishing
from eosdb.integrations.publishing.fetching import IN_USE_MS
from eosdb.integrations.publishing.storage import Storage
from eosdb.model.failpoints import Failpoint, watched
from tests.integrations.publishing.conftest import Device, read

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_publishers_at_once_and_readers_among_them(device: Device) -> None:
    """Two programs publish while a third writes; readers fetch all the time."""
    words = ["--db", device.db.path, "publish", device.url, "--keep", "1"]
    code = (
        "import sys; from eosdb.cli.main import main\n"
        "for _ in range(4): main(sys.argv[1:], standalone_mode=False)"
    )
    device.publish()
    publishers = [
        subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    seen = []
    while any(publisher.poll() is None for publisher in publishers):
        device.append(1)
        path = device.fetch()
        with eosdb.connect(path, read_only=True) as db:
            seen.append(int(str(db.info()["journal_position"])))
    assert [publisher.returncode for publisher in publishers] == [0, 0]
    assert len(set(seen)) > 1
    newest = max(device.snapshots())
    assert publishing.published(device.url)[0].manifest.name == newest
    device.publish()
    assert read(device.fetch()) == device.records()


def test_whoever_comes_last_with_an_older_copy_leaves_the_newer_one_latest(device: Device) -> None:
    """The first publisher stands still before it names its snapshot; the second does all in between."""
    inside = False

    def second(point: Failpoint) -> None:
        nonlocal inside
        if point is Failpoint.CHUNKS_SENT and not inside:
            inside = True
            device.append(1)
            device.publish()

    with watched(second):
        device.publish()
    assert len(device.snapshots()) == 2
    assert read(device.fetch()) == 26


def test_an_older_copy_that_was_put_back_is_published_as_the_latest(
    device: Device, tmp_path: Path
) -> None:
    device.db.backup(tmp_path / "older.db")
    device.append(2)
    device.publish()
    with eosdb.connect(tmp_path / "older.db", clock=device.db.clock) as db:
        older = Device(db, device.url, device.cache)
        older.append(1, size=40)
        older.publish()
    assert read(device.fetch()) == 26


def test_a_publisher_that_took_too_long_looks_again_before_it_names_anything(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile somebody may have removed what was there."""
    assert isinstance(device.db.clock, ManualClock)
    clock = device.db.clock
    device.publish()
    device.append(1)
    slow = True

    def stand_still(point: Failpoint) -> None:
        nonlocal slow
        if point is Failpoint.CHUNKS_SENT and slow:
            slow = False
            clock.advance(3_600_000)
            shutil.rmtree(device.folder() / "chunks")

    with watched(stand_still):
        device.publish()
    assert read(device.fetch()) == 26


def test_what_might_be_removed_is_sent_under_another_name(device: Device) -> None:
    """Chunks that lay about for long, of an attempt that was given up."""
    device.publish()
    folder = device.folder()
    shutil.rmtree(folder / "snapshots")
    for path in device.chunks().values():
        os.utime(path, (1, 1))
    done = device.publish()
    assert done.sent_bytes > device.publish().size
    assert all("-" in name for name in device.chunks()), "and the old ones are gone"
    assert read(device.fetch()) == 25


def test_the_cache_is_bounded_and_keeps_what_is_in_use(device: Device) -> None:
    clock = ManualClock(start_ms=1_700_000_000_000)
    small = publishing.Cache(device.cache.folder, size_bytes=1)

    def fetch(snapshot: str | None = None) -> Path:
        path = publishing.fetch(device.url, cache=small, snapshot=snapshot, clock=clock)
        return Path(path)

    first = device.publish().snapshot
    old = fetch()
    device.append(1)
    device.publish()
    new = fetch()
    assert old.exists(), "somebody may be about to open it"
    clock.advance(IN_USE_MS)
    assert fetch() == new
    assert not old.exists()
    assert fetch(first) == old
    assert new.exists()
    clock.advance(IN_USE_MS)
    assert fetch(first) == old
    assert not new.exists()


def test_programs_that_fetch_at_once_fetch_once(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.publish()
    loads = []
    read_object = Storage.read

    def count(storage: Storage, *given: object) -> bytes | None:
        if len(given) == 3:
            loads.append(given)
        return read_object(storage, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Storage, "read", count)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(device.fetch())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert len(set(paths)) == 1
    assert len(loads) == len(set(loads))
    assert read(paths[0]) == 25


def test_the_default_cache_is_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOSDB_CACHE", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Path(publishing.Cache.default().folder)
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(eosdb.StorageError, match="belongs to another user"):
        publishing.Cache.default()
    monkeypatch.setenv("EOSDB_CACHE", str(tmp_path / "named"))
    assert publishing.Cache.default().folder == str(tmp_path / "named")
