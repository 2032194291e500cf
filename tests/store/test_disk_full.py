"""A disk that fills up: the named error, nothing lost, and on it goes when there is room again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.readers import committed_values

TP = TopicPartition("t", 0)
SIZE = 3 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB. Where it cannot be mounted, the limited-file tests stand in for it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: no file system can be mounted here ({done.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(db: eosdb.Database, producer: eosdb.Producer) -> list[bytes]:
    """Send until the disk is full; what was acknowledged."""
    acknowledged: list[bytes] = []
    for i in range(20_000):
        value = b"%06d" % i + b"x" * 1_000
        future = producer.send("t", value)
        if future.exception() is not None:
            assert isinstance(future.exception(), eosdb.DatabaseFullError)
            return acknowledged
        acknowledged.append(value)
    raise AssertionError("the disk never filled up")


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (SIZE // 3))
    path = small_disk / "full.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("t")
        producer = db.producer()
        acknowledged = fill(db, producer)
        assert acknowledged
        assert committed_values(db, TP) == acknowledged
        with pytest.raises(eosdb.DatabaseFullError, match="make room"):
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"y" * 100_000)]))
        ballast.unlink()
        assert producer.send("t", b"again").result().offset == len(acknowledged)
        assert db.verify().ok
    with eosdb.connect(path) as db:
        assert committed_values(db, TP) == [*acknowledged, b"again"]


def test_a_transaction_cut_off_by_a_full_disk_can_be_ended(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (SIZE // 3))
    with eosdb.connect(small_disk / "full.db") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(eosdb.DatabaseFullError):
            for _ in range(20_000):
                producer.send("t", b"x" * 1_000)
        ballast.unlink()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"kept")
        assert committed_values(db, TP) == [b"kept"]
        assert db.verify().ok


def test_there_is_no_room_even_for_a_new_file(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"\0" * (SIZE - 8192))
    with pytest.raises(eosdb.DatabaseFullError):
        eosdb.connect(small_disk / "new.db")
    (small_disk / "ballast").unlink()
    with eosdb.connect(small_disk / "new.db") as db:
        assert db.verify().ok


LIMITED = """
import resource, signal, sys
import eosdb
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
db = eosdb.connect(sys.argv[1])
db.admin.create_topic("t")
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
stored = 0
try:
    while True:
        db.broker.append(eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record(value=b"x" * 999)]))
        stored += 1
except eosdb.DatabaseFullError:
    pass
assert db.broker.offsets(eosdb.TopicPartition("t", 0)).log_end_offset == stored
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert db.producer().send("t", b"again").result().offset == stored > 5
assert db.verify().ok
db.close()
"""


def test_a_file_that_may_not_grow_is_a_full_disk(db_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(db_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
