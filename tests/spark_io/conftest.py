"""Files that most tests of `spark_io` need. None of them starts Spark, or needs Java."""

from __future__ import annotations

from pathlib import Path

import pyspark  # noqa: F401  Without it, all of the folder is skipped at once.
import pytest

import eosdb

from .making import append, fill, make


@pytest.fixture
def shop(db_path: Path) -> Path:
    fill(db_path)
    return db_path


@pytest.fixture
def pipe(db_path: Path) -> Path:
    """A hundred numbers, and topics to write to."""
    with eosdb.connect(db_path, durability="off") as db:
        for topic in ("orders", "good", "bad", "more"):
            db.admin.create_topic(topic)
    append(db_path, range(100))
    return db_path


@pytest.fixture
def target(db_path: Path) -> Path:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("out", partitions=3)
        db.admin.create_topic("other")
    return db_path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy made after 10 numbers lies beside the file, which has 20."""
    path = make(tmp_path / "source.db", range(10))
    with eosdb.connect(path) as db:
        db.backup(tmp_path / "backup.db")
    append(path, range(10, 20))
    return path
