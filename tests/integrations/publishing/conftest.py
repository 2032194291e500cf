"""A file of a few megabytes that grows, and a folder in object storage for it."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec  # noqa: F401  Without it, all of the folder is skipped at once.
import pytest

import eosdb
from eosdb import PublishReport, Record, RecordBatch, TopicPartition
from eosdb.integrations import publishing
from tests.readers import committed_values

TP = TopicPartition("t", 0)
LARGE = 200_000


class Device:
    """An open file, and the URL at which it publishes."""

    def __init__(self, db: eosdb.Database, url: str, cache: publishing.Cache) -> None:
        self.db, self.url, self.cache = db, url, cache

    def append(self, count: int, size: int = LARGE) -> None:
        for _ in range(count):
            number = self.db.broker.offsets(TP).log_end_offset
            value = number.to_bytes(4, "big") * (size // 4)
            self.db.broker.append(TP, RecordBatch([Record(value=value)]))

    def publish(self, *, keep: int = 10, anew: bool = False) -> PublishReport:
        done = self.db.publish_copy(self.url, keep=keep, anew=anew)
        assert done is not None
        return done

    def fetch(self, snapshot: str | None = None) -> Path:
        return Path(publishing.fetch(self.url, cache=self.cache, snapshot=snapshot))

    def records(self) -> int:
        return len(committed_values(self.db, TP))

    def folder(self) -> Path:
        """Where the file is published, if that is a local folder."""
        (found,) = Path(self.url.removeprefix("file://")).iterdir()
        return found

    def chunks(self) -> dict[str, Path]:
        return {path.name: path for path in (self.folder() / "chunks").iterdir()}

    def snapshots(self) -> list[str]:
        return sorted(path.stem for path in (self.folder() / "snapshots").iterdir())


def read(path: Path) -> int:
    """How many records a fetched file has; every one of them is checked."""
    with eosdb.connect(path, read_only=True) as db:
        assert db.verify().ok
        return len(committed_values(db, TP))


@pytest.fixture
def cache(tmp_path: Path) -> publishing.Cache:
    return publishing.Cache(str(tmp_path / "cache"))


@pytest.fixture
def device(db: eosdb.Database, tmp_path: Path, cache: publishing.Cache) -> Device:
    """With five megabytes, of which nothing is published yet."""
    db.admin.create_topic("t")
    made = Device(db, f"file://{tmp_path}/fleet", cache)
    made.append(25)
    return made


@pytest.fixture
def elsewhere(device: Device) -> Device:
    """The same file, published to another kind of storage."""
    return Device(device.db, f"memory://{uuid.uuid4().hex}/fleet", device.cache)
