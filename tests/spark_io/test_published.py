"""Files in object storage: planned without a download, read from a local cache, as a batch and a stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.spark_io import SparkOptionError, snapshot
from eosdb.spark_io.planning import files, options, plan
from eosdb.spark_io.source import EosdbDataSource
from tests.spark_io.like_spark import SCHEMA, Reader, tables, texts

TP = TopicPartition("t", 0)


class Device:
    """A file that publishes."""

    def __init__(self, path: Path, url: str) -> None:
        self.path, self.url = path, url
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", partitions=2)

    def append(self, *values: bytes, timestamp: int | None = None) -> None:
        with eosdb.connect(self.path) as db:
            batch = RecordBatch([Record(value=value, timestamp=timestamp) for value in values])
            db.broker.append(TP, batch)

    def publish(self) -> str:
        """The URL of the file."""
        with eosdb.connect(self.path, read_only=True) as db:
            done = db.publish_copy(self.url)
        assert done is not None
        return done.url


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Two devices that publish to one folder; with `local:` it is a URL as others are."""
    monkeypatch.setenv("EOSDB_CACHE", str(tmp_path / "cache"))
    found = [Device(tmp_path / f"{n}.db", f"local://{tmp_path}/fleet") for n in range(2)]
    for number, device in enumerate(found):
        device.append(b"%d-a" % number, b"%d-b" % number, timestamp=1_000)
        device.append(b"%d-c" % number, timestamp=2_000)
        device.publish()
    return found


@pytest.mark.slow
def test_planning_downloads_nothing(
    fleet: list[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str) -> str:
        raise AssertionError(url)

    monkeypatch.setattr("eosdb.integrations.publishing.fetch", fetch)
    url, _ = files.resolve(fleet[0].url).paths
    ranges = plan.batch(fleet[0].url, options.parse({}, streaming=False))
    assert [range_.size for range_ in ranges] == [3, 0, 3, 0]
    assert not (tmp_path / "cache").exists()
    # What a checkpoint remembers of earlier snapshots is known without the file, too.
    marks = []
    for value in (b"d", b"e", b"f"):
        marks.append(files.look(url, lambda _: []).mark)
        for device in fleet:
            device.append(value)
            device.publish()
    assert files.look(url, lambda _: marks).departures == {}


@pytest.mark.slow
def test_an_older_copy_that_was_put_back_is_noticed(fleet: list[Device], tmp_path: Path) -> None:
    with eosdb.connect(fleet[0].path) as db:
        db.backup(tmp_path / "older.db")
    fleet[0].append(b"0-d")
    url = fleet[0].publish()
    known = files.look(url, lambda _: []).mark
    older = fleet[0]
    older.path = tmp_path / "older.db"
    older.append(b"0-x")
    older.append(b"0-y")
    older.publish()
    assert "another life" in files.look(url, lambda _: [known]).departures[known]


@pytest.mark.slow
def test_a_published_fleet_is_read_like_local_files(fleet: list[Device], tmp_path: Path) -> None:
    def read(*paths: object, **options: object) -> list[str]:
        reader = EosdbDataSource(
            texts({"paths": json.dumps([*map(str, paths)]), **options})
        ).reader(SCHEMA)
        read = tables(reader, reader.partitions())
        return sorted(value.decode() for table in read for value in table["value"].to_pylist())

    assert read(fleet[0].url) == ["0-a", "0-b", "0-c", "1-a", "1-b", "1-c"]
    fleet[0].append(b"0-d")
    one = fleet[0].publish()
    fleet[0].append(b"0-e")
    found = read(one, tmp_path / "1.db")
    assert found == ["0-a", "0-b", "0-c", "0-d", "1-a", "1-b", "1-c"], (
        "the last is not published yet"
    )
    snapshot(fleet[0].path, fleet[0].url)
    since = {"startingTimestamp": 2_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(one, **since) == ["0-c", "0-d", "0-e"]
    for folder in (tmp_path / "fleet", f"file://{tmp_path}/fleet"):
        assert len(read(folder)) == 8, "a mounted folder is read as its URL is"
    with pytest.raises(SparkOptionError, match="a place with published files"):
        files.resolve(f"local://{tmp_path}/nothing")


@pytest.mark.slow
def test_a_stream_follows_what_is_published(fleet: list[Device]) -> None:
    for number, device in enumerate(fleet):  # `Reader` reads numbers.
        device.append(b"1%d" % number)
        device.publish()
    start = json.dumps({"t": {"0": 3}})
    reader = Reader(fleet[0].url, subscribe="t", startingOffsets=start)
    assert reader() == [10, 11]
    fleet[1].append(b"12")
    assert reader() == []
    fleet[1].publish()
    assert reader() == [12]
