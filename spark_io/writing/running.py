"""Identifies the streaming query whose foreachBatch is running. Spark Connect offers no way to do so.

The micro-batch is found in any thread, through the session of its DataFrames, which Spark creates for the
query. Spark's local properties exist only in the thread in which it calls the function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class Query(NamedTuple):
    """`id` identifies the query and its checkpoint; `run` one attempt of one micro-batch."""

    id: str | None = None
    run: str | None = None
    checkpoint: str | None = None
    batch: int | None = None
    is_its_thread: bool = True
    """Whether this is the thread in which Spark calls the function."""


def query_of(spark: SparkSession) -> Query:
    """The query; fields that the session does not reveal are None."""
    try:
        context = spark.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        run = context.getLocalProperty("spark.sql.execution.id")
    except Exception:  # Spark Connect has no context, and raises several kinds of errors.
        return Query()
    found = _running(spark, query_id)
    if found is not None:
        return found
    return Query(query_id, run, None, None if batch_id is None else int(batch_id))


def _running(spark: Any, query_id: str | None) -> Query | None:
    """Find the query in Spark's internals, because foreachBatch gets only the batch number."""
    try:
        session = spark._jsparkSession
        for query in session.sharedState().activeStreamingQueries().values():
            its_id = str(query.id())
            is_it = (
                query.sparkSessionForStream().equals(session)
                if query_id is None
                else its_id == query_id
            )
            if is_it:
                return Query(
                    its_id,
                    str(query.runId()),
                    str(query.resolvedCheckpointRoot()),
                    int(query.lastExecution().currentBatchId()),
                    query_id is not None,
                )
    except Exception:
        pass
    return None


@contextlib.contextmanager
def active(spark: Any) -> Iterator[None]:
    """Make this session the active one during the block. Spark resolves data sources in the active
    session. In a thread that it did not start, that may be another one, without the format `eosdb`."""
    before = classes = None
    with contextlib.suppress(Exception):  # Spark Connect has its session on the server.
        classes = SparkSession._get_j_spark_session_class(spark._jvm)
        found = classes.getActiveSession()
        before = found.get() if found.isDefined() else None
        classes.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if classes is not None and before is None:
            classes.clearActiveSession()
        elif classes is not None:
            classes.setActiveSession(before)
