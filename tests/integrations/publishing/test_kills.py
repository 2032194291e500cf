"""A publisher is killed between any two steps: readers see what was published before, and the next attempt
goes on where it was."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import eosdb
from eosdb.integrations import publishing
from eosdb.integrations.publishing.storage import Storage
from eosdb.model.failpoints import Failpoint
from tests.integrations.publishing.conftest import Device, read
from tests.programs import ended


def killed(device: Device, point: Failpoint, visits: int = 0) -> None:
    words = ["--db", device.db.path, "publish", device.url, "--keep", "1"]
    done = ended(
        [sys.executable, "-m", "eosdb.cli", *words],
        env={**os.environ, "EOSDB_FAILPOINT": f"{point.value}:{visits}"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("first", [True, False], ids=["the first time", "a later time"])
@pytest.mark.parametrize(
    ("point", "visits"),
    [(Failpoint.CHUNK_SENT, 1), (Failpoint.CHUNKS_SENT, 0), (Failpoint.SNAPSHOT_SENT, 0)],
)
def test_nothing_half_is_seen_and_nothing_is_sent_twice(
    device: Device, point: Failpoint, visits: int, first: bool
) -> None:
    if not first:
        device.publish(keep=1)
        device.append(20)
    killed(device, point, visits)
    if first:
        with pytest.raises(eosdb.StorageError, match="no published file"):
            device.fetch()
    else:
        assert read(device.fetch()) == 25
    assert not list(Path(device.db.path).parent.glob("*.publishing*")), "no copy is left"
    there = set(device.chunks())
    whole = device.db.publish_copy(f"{device.url}-elsewhere")
    done = device.publish(keep=1)
    assert whole is not None
    sent = sum(path.stat().st_size for name, path in device.chunks().items() if name not in there)
    assert done.sent_bytes == sent < whole.sent_bytes
    assert done.sent_bytes == 0 or point is Failpoint.CHUNK_SENT
    assert read(device.fetch()) == device.records()


@pytest.mark.process
def test_chunks_of_removed_snapshots_that_a_kill_left_go_a_day_later(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.publish()
    first = set(device.chunks())
    os.utime(device.folder() / "snapshots" / f"{device.snapshots()[0]}.json", (1, 1))
    device.append(20)
    device.publish()
    os.utime(device.folder() / "snapshots" / f"{device.snapshots()[1]}.json", (2, 2))
    device.append(1)
    killed(device, Failpoint.SNAPSHOTS_REMOVED)
    assert len(device.snapshots()) == 2, "the latest, and the one that has just been replaced"
    device.append(1)
    device.publish()
    left = set(device.chunks()) & first
    for path in device.chunks().values():
        os.utime(path, (3, 3))
    device.append(1)
    done = device.publish()
    named = left & publishing.published(device.url)[0].manifest.objects
    assert set(device.chunks()) & first < left
    assert set(device.chunks()) & first >= named
    assert done.removed_objects
    assert read(device.fetch()) == device.records()


@pytest.mark.slow
def test_a_chunk_that_a_kill_left_half_written_goes_a_day_later(device: Device) -> None:
    device.publish()
    chunks = device.folder() / "chunks"
    name = next(iter(device.chunks()))
    old, young = (chunks / f"{name}.{digit * 32}.unfinished" for digit in "ab")
    other = chunks / "their.unfinished"
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (1, 1))
    device.append(1)
    assert device.publish().removed_objects == 1
    assert not old.exists()
    assert young.exists(), "somebody may be writing it"
    assert other.exists()


@pytest.mark.slow
def test_a_copy_that_a_killed_publisher_left_is_taken_over(device: Device) -> None:
    left = Path(f"{device.db.path}.publishing")
    left.write_bytes(os.urandom(100_000_000 // 5))
    device.publish()
    assert not left.exists()
    assert read(device.fetch()) == device.records()


@pytest.mark.slow
def test_a_fetch_that_was_cut_off_goes_on_where_it_was(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.publish()
    read_object = Storage.read
    ranges: list[tuple[object, ...]] = []

    def fail(storage: Storage, *given: object) -> bytes | None:
        ranges.append(given)
        if len(given) == 3 and len(ranges) > 3:
            raise eosdb.StorageError("the link is down")
        return read_object(storage, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Storage, "read", fail)
    with pytest.raises(eosdb.StorageError, match="the link is down"):
        device.fetch()
    assert [p.name for p in Path(device.cache.folder).rglob("*") if p.is_file()].count("lock") == 1
    loaded = next(given for given in ranges if len(given) == 3)
    device.append(1)
    device.publish()
    ranges.clear()

    def note(storage: Storage, *given: object) -> bytes | None:
        ranges.append(given)
        return read_object(storage, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Storage, "read", note)
    assert read(device.fetch()) == device.records()
    assert loaded not in ranges
    left = [p.name for p in Path(device.cache.folder).rglob("*") if p.is_file()]
    assert sorted(left) == sorted(["lock", *(n for n in left if n.endswith(".db"))])
