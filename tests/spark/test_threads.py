"""Writes from threads of the user's, which Spark knows nothing of: they work, and within a function for
foreachBatch a repeated micro-batch is recognized in them, too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eosdb.spark_io import foreach_batch, read, write
from tests.spark.test_repeats import (
    LARGE,
    SMALL,
    each_batch,
    forget_last_batch,
    numbers_in,
    pipe,
)
from tests.spark.test_writing import numbers, target

pytestmark = pytest.mark.spark

__all__ = ["pipe", "target"]


def in_threads(*works: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [made.result() for made in [pool.submit(work) for work in works]]


def test_a_thread_reads_and_writes_like_any_other(spark: Any, target: Path) -> None:
    other = spark.newSession()
    made = in_threads(
        lambda: write(numbers(spark, 20), target, topic="out"),
        lambda: write(numbers(other, 20), target, topic="other"),
    )
    assert [report.rows for report in made] == [20, 20]  # type: ignore[attr-defined]
    assert in_threads(lambda: read(other, target, subscribe="out").count()) == [20]


def test_a_repeated_micro_batch_is_not_doubled_by_writes_in_threads(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    bad = foreach_batch(pipe, topic="bad")
    skipped: list[bool] = []

    def work(frame: Any, batch_id: int) -> None:
        works = [
            lambda: skipped.append(write(frame.where(SMALL), pipe, topic="good").skipped),
            lambda: skipped.append(write(frame.where(LARGE), pipe, topic="good").skipped),
            lambda: bad(frame.where(SMALL), batch_id),
            lambda: bad(frame.where(LARGE), batch_id),
        ]
        # The order of threads is nobody's: another one each time.
        for chosen in works if len(skipped) < 4 else works[::-1]:
            in_threads(chosen)

    for _ in range(2):
        each_batch(spark, pipe, tmp_path / "cp", work, maxOffsetsPerTrigger=60)
        assert numbers_in(pipe, "good") == numbers_in(pipe, "bad") == list(range(100))
        forget_last_batch(tmp_path / "cp")
    assert skipped.count(True) >= 1
