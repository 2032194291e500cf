"""What a session says about the streaming query whose foreachBatch is running; Spark Connect says
nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class Query(NamedTuple):
    """`id` belongs to the checkpoint for good; `run` only to this run of this micro-batch."""

    id: str | None
    run: str | None
    checkpoint: str | None


def query_of(spark: SparkSession) -> Query:
    """The query; None for what the session does not say."""
    try:
        context = spark.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.sql.execution.id")
    except Exception:  # Spark Connect has no context, and says so in several ways.
        return Query(None, None, None)
    return Query(query_id, run, None if query_id is None else _checkpoint(spark, query_id))


def _checkpoint(spark: Any, query_id: str) -> str | None:
    """From Spark's internals: foreachBatch sees no option with it. Without it little is lost."""
    try:
        key = spark.sparkContext._jvm.java.util.UUID.fromString(query_id)
        running = spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
        return str(running.resolvedCheckpointRoot())
    except Exception:
        return None
