"""Writes without Spark: how large they may be, and where they may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.spark_io import write
from eosdb.spark_io.planning.errors import SparkOptionError
from tests.spark_io.like_spark import frame


@pytest.mark.slow
def test_a_large_batch_is_one_transaction(target: Path) -> None:
    rows: Any = frame(range(60_000))
    write(rows, target, topic="out")
    with eosdb.connect(target) as db:
        ends = db.query(
            "SELECT transactional_id, count(*) FROM all_records WHERE control = 'COMMIT'"
        )
        ((transactional_id, markers),) = ends.rows
        grown = [o for o in db.admin.partition_offsets().values() if o.log_end_offset]
        ((count,),) = db.query("SELECT count(*) FROM committed_records").rows
    assert transactional_id.startswith("__eosdb.sink:spark-batch:")
    assert markers == len(grown)
    assert count == 60_000


def test_a_published_copy_is_no_target(target: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with eosdb.connect(target) as db:
        db.publish_copy(copy)
    content = copy.read_bytes()
    rows: Any = frame(range(9))
    with pytest.raises(SparkOptionError, match=r"copy.*write to the original file"):
        write(rows, copy, topic="out")
    assert copy.read_bytes() == content
    assert not (tmp_path / "copy.db-staging").exists()
