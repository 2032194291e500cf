"""What is published can be fetched elsewhere, whole and read-only; later only what has changed is sent."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import eosdb
from eosdb.admin.tools import Tools
from eosdb.integrations import publishing
from eosdb.integrations.publishing.storage import Storage
from tests.integrations.publishing.conftest import TP, Device, read
from tests.readers import dump_state

pytestmark = pytest.mark.slow


def test_a_fetched_snapshot_is_the_file_as_it_was(device: Device, elsewhere: Device) -> None:
    for one in (device, elsewhere):
        done = one.publish()
        path = one.fetch()
        assert done.size == path.stat().st_size
        assert dump_state(path) == dump_state(Path(device.db.path))
        assert read(path) == 25


def test_a_fetched_snapshot_is_read_only_and_needs_nothing_beside_it(device: Device) -> None:
    device.publish()
    path = device.fetch()
    assert path.stat().st_mode & 0o777 == 0o444
    assert path.read_bytes()[18:20] == b"\x01\x01", "no write-ahead log"
    before = sorted(os.listdir(path.parent))
    with eosdb.connect(path, read_only=True) as db:
        assert db.broker.offsets(TP).log_end_offset == 25
        assert sorted(os.listdir(path.parent)) == before, "neither -wal nor -shm"


def test_what_gets_its_name_is_on_the_disk_before(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks, snapshots and fetched copies: after a power cut no name leads to less than it names."""
    synced, named = set[int](), list[str]()
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def noted_rename(source: str, target: str) -> None:
        assert os.stat(source).st_ino in synced, f"{target} is named before it is on the disk"
        rename(source, target)
        synced.discard(os.stat(os.path.dirname(target)).st_ino)
        named.append(target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    for _ in range(2):
        device.append(1)
        device.publish()
        device.fetch()
        publishing.fetch(device.url, tmp_path / "copy.db")
    assert {"chunks", "snapshots", "cache"} <= {part for name in named for part in Path(name).parts}
    assert all(os.stat(os.path.dirname(name)).st_ino in synced for name in named)


def test_only_what_has_changed_is_sent_and_fetched(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = device.publish()
    assert first.sent_bytes > 5_000_000
    before = device.fetch()
    device.append(3)
    grown = device.publish()
    assert grown.sent_bytes < 2_000_000, "0.6 MB of records, and the pages that lead to them"
    read_bytes = 0
    read_object = Storage.read

    def count(storage: Storage, *given: object) -> bytes | None:
        nonlocal read_bytes
        data = read_object(storage, *given)  # type: ignore[arg-type]
        read_bytes += len(data or b"")
        return data

    monkeypatch.setattr(Storage, "read", count)
    after = device.fetch()
    assert read_bytes < grown.sent_bytes + 10_000
    assert (read(before), read(after)) == (25, 28)
    assert read(device.fetch(first.snapshot)) == 25


def test_an_unchanged_file_is_not_sent_again(device: Device) -> None:
    first = device.publish()
    again = device.publish()
    assert (again.sent_objects, again.sent_bytes) == (0, 0)
    assert (again.snapshot, device.snapshots()) == (first.snapshot, [first.snapshot])


def test_what_is_kept_stays_in_proportion_to_the_file(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time other pages change; pieces that are mostly outdated are given up."""
    monkeypatch.setattr("eosdb.integrations.publishing.manifest.SUPERSEDED_S", -1)
    for _ in range(15):
        device.append(1)
        device.publish(keep=1)
    named = publishing.published(device.url)[0].manifest.objects
    chunks = device.chunks()
    assert set(chunks) == named
    size = device.publish().size
    assert sum(path.stat().st_size for path in chunks.values()) < 2 * size
    assert len(chunks) < 8 * (size // 4_000_000 + 1) + 1
    assert read(device.fetch()) == 40


def test_readers_and_writers_go_on_while_a_slow_link_takes_the_bytes(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload stands still until the file has been written, and its WAL reused."""
    begun, go_on = threading.Event(), threading.Event()
    write_object = Storage.write

    def slow(storage: Storage, name: str, data: bytes) -> None:
        begun.set()
        assert go_on.wait(60)
        write_object(storage, name, data)

    monkeypatch.setattr(Storage, "write", slow)
    upload = threading.Thread(target=device.publish)
    upload.start()
    try:
        assert begun.wait(60)
        device.append(5)
        device.db._store.checkpoint()
        assert not device.db.info()["wal_held_by"]
    finally:
        go_on.set()
        upload.join()
    assert read(device.fetch()) == 25


def test_planning_needs_the_manifest_only(device: Device, tmp_path: Path) -> None:
    device.append(2, size=40)
    with eosdb.connect(tmp_path / "other.db") as other:
        other.admin.create_topic("u", partitions=2)
        other.publish_copy(device.url)
        mark = Tools(other.admin).history_mark()
        cut = other.admin.consistent_cut()
    device.publish()
    found = publishing.published(device.url)
    assert len(found) == 2
    (one,) = [one for one in found if one.manifest.mark == mark]
    assert dict(one.manifest.partitions) == cut
    (mine,) = publishing.published(next(one.url for one in found if one.manifest.mark != mark))
    assert mine.manifest.partitions[TP][1] == 27
    with pytest.raises(eosdb.IllegalStateError, match="has 2 files; name one, such as "):
        device.fetch()


def test_a_target_is_replaced_by_newer_snapshots_and_a_live_file_never(
    device: Device, tmp_path: Path
) -> None:
    device.publish()
    target = tmp_path / "copy.db"
    assert publishing.fetch(device.url, target) == str(target)
    device.append(1)
    device.publish()
    publishing.fetch(device.url, target)
    assert read(target) == 26
    assert not list(tmp_path.glob("copy.db?*"))
    for live in (Path(device.db.path), Path(__file__)):
        with pytest.raises(eosdb.IllegalStateError, match="not a published copy"):
            publishing.fetch(device.url, live)
    assert device.records() == 26


def test_progress_counts_bytes_and_its_listener_may_end_the_work(device: Device) -> None:
    seen: list[tuple[int, int]] = []
    device.db.publish_copy(device.url, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == device.publish().size
    fetched: list[tuple[int, int]] = []
    publishing.fetch(
        device.url,
        cache=device.cache,
        on_progress=lambda done, total: fetched.append((done, total)),
    )
    assert fetched[0] == (0, seen[-1][1])
    assert fetched[-1] == seen[-1]
    device.append(1)

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        device.db.publish_copy(device.url, on_progress=stop)
    assert read(device.fetch()) == 25


@pytest.mark.parametrize(("url", "error", "said"), [
    ("nothing://there/fleet", eosdb.ConfigError, "Protocol not known: nothing"),
    ("gs://bucket/fleet", eosdb.ConfigError, "gs:// gcsfs"),
    ("s3://bucket/fleet\ud800", eosdb.ConfigError, "UTF-8"),
    ("file:///proc/no/such/place", eosdb.StorageError, "cannot be written"),
])  # fmt: skip
def test_a_place_that_is_none_is_said(
    device: Device, url: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        device.db.publish_copy(url)


def test_a_place_with_nothing_published_is_said(device: Device) -> None:
    with pytest.raises(eosdb.StorageError, match="there is no published file; publish one"):
        device.fetch()
    device.publish()
    with pytest.raises(eosdb.StorageError, match="there is no published file with a snapshot x"):
        device.fetch("x")
    with pytest.raises(eosdb.ConfigError, match="keep"):
        device.publish(keep=0)
    with pytest.raises(eosdb.StorageError, match="cannot be written"):
        device.db.publish_copy(device.url, folder="/no/such/folder")
    assert not list(Path(device.db.path).parent.glob("*.publishing*"))
