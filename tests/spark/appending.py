"""A driver that has a file open, and tasks that open it too, all appending at once; whoever appends notes
what was acknowledged, as in `fork_worker`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import eosdb
from tests.chaos.fork_worker import append, store

TASKS = 4


def for_each_partition(frame: Any, path: str) -> None:
    def task(rows: Iterator[Any]) -> None:
        store(path, f"partition-{uuid4()}", len(list(rows)))

    frame.foreachPartition(task)


def map_in_pandas(frame: Any, path: str) -> None:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        with eosdb.connect(path) as db:
            for batch in batches:
                append(db, path, f"pandas-{uuid4()}", len(batch))
                yield batch

    frame.mapInPandas(task, frame.schema).collect()


@functools.cache
def kept_open(path: str) -> eosdb.Database:
    """As long as the worker lives, which Spark uses again and at last kills."""
    return eosdb.connect(path)


def function_of_a_row(frame: Any, path: str) -> None:
    from pyspark.sql.functions import udf

    def task(number: int) -> int:
        append(kept_open(path), path, f"row-{uuid4()}", 1)
        return number

    frame.select(udf(task, "long", useArrow=False)("id")).collect()


def append_everywhere(path: str, session: Any, in_the_driver: Callable[[str], None]) -> None:
    """In tasks of every kind, and in this process as long as there are any."""
    ended = threading.Event()

    def meanwhile() -> None:
        while not ended.wait(0.05):
            in_the_driver(f"driver-{uuid4()}")

    driver = threading.Thread(target=meanwhile)
    driver.start()
    try:
        frame = session.range(12 * TASKS, numPartitions=TASKS)
        for work in (for_each_partition, map_in_pandas, function_of_a_row):
            work(frame, path)
    finally:
        ended.set()
        driver.join()
