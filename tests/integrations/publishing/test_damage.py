"""Chunks and manifests that are damaged or gone are noticed, named, and mended by publishing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from tests.integrations.publishing.conftest import Device, read


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1, 2, -1])
@pytest.mark.parametrize(
    ("harm", "error", "advice", "anew"),
    [
        (flip, eosdb.CorruptDatabaseError, "publish the whole file anew", True),
        (cut, eosdb.CorruptDatabaseError, "publish the whole file anew", False),
        (Path.unlink, eosdb.StorageError, "publish the file again", False),
    ],
    ids=["flipped", "cut short", "gone"],
)
def test_a_chunk_that_is_not_what_was_sent_is_named_and_sent_again(
    device: Device, harm: Callable[[Path], None], error: type[Exception], advice: str, anew: bool,
    which: int,
) -> None:  # fmt: skip
    device.publish()
    name, path = sorted(device.chunks().items(), key=lambda item: item[1].stat().st_size)[which]
    harm(path)
    with pytest.raises(error, match=f"chunks/{name} is .*{advice}"):
        device.fetch()
    assert not list(Path(device.cache.folder).rglob("*.db")), "nothing half appears"
    device.append(1)
    device.publish(anew=anew)
    assert read(device.fetch()) == 26


@pytest.mark.slow
@pytest.mark.parametrize("harm", [flip, cut, lambda path: path.write_bytes(b"")])
def test_a_damaged_manifest_is_said_and_replaced(
    device: Device, harm: Callable[[Path], None]
) -> None:
    device.publish()
    harm(device.folder() / "latest.json")
    with pytest.raises(eosdb.CorruptDatabaseError, match=r"latest\.json is damaged"):
        device.fetch()
    device.publish()
    assert read(device.fetch()) == 25


@pytest.mark.slow
def test_a_manifest_whose_names_lead_elsewhere_is_refused(device: Device) -> None:
    """Whoever can write there can compute a checksum, too."""
    from eosdb.integrations.publishing import manifest

    device.publish()
    path = device.folder() / "latest.json"
    body = json.loads(path.read_bytes())["snapshot"]
    for change in (
        {"hashes": "../../../secret"},
        {"chunks": [["/etc/passwd", 1, [[0, 1]]]]},
        {"file_id": "../elsewhere"},
        {"name": "../../home"},
        {"chunks": [["0" * 64, 1, [[0, 10**12]]]]},
        {"size": "large"},
        {"another": 1},
        {"partitions": [["t", 0, 0, "25", 25, 25, 25, 0]]},
        {"partitions": [[["t"], 0, 0, 25, 25, 25, 25, 0]]},
        {"partitions": [[5, 0, 0, 25, 25, 25, 25, 0]]},
    ):
        text = manifest._canonical({**body, **change})
        path.write_text(f'{{"sha256":"{manifest.digest(text.encode())}","snapshot":{text}}}')
        with pytest.raises(eosdb.CorruptDatabaseError, match=r"latest\.json is damaged"):
            device.fetch()
    text = manifest._canonical({**body, "format": 2})
    path.write_text(f'{{"sha256":"{manifest.digest(text.encode())}","snapshot":{text}}}')
    with pytest.raises(eosdb.UnsupportedVersionError, match="by a newer eosdb"):
        device.fetch()


@pytest.mark.slow
def test_what_rots_in_the_cache_is_fetched_again(device: Device) -> None:
    device.publish()
    before = device.fetch()
    before.chmod(0o644)
    flip(before)
    device.append(1)
    device.publish()
    assert read(device.fetch()) == 26


def test_a_disk_that_was_full_when_a_copy_began_keeps_the_next_copy_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with eosdb.connect(tmp_path / "a.db") as db:
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", full)
            with pytest.raises(eosdb.StorageError, match="No space left"):
                db.publish_copy(f"file://{tmp_path}/published")
        assert db.publish_copy(f"file://{tmp_path}/published") is not None
