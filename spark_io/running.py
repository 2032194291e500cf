"""What a session tells of the streaming query in whose foreachBatch we are; Spark Connect tells nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class Query(NamedTuple):
    """`id` is the checkpoint's for ever; `run` is what only this run of this micro-batch has."""

    id: str | None
    run: str | None
    checkpoint: str | None


def query_of(spark: SparkSession) -> Query:
    """What is not told is None."""
    try:
        context = spark.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.sql.execution.id")
    except Exception:  # Spark Connect has no context, and says so in several ways.
        return Query(None, None, None)
    return Query(query_id, run, None if query_id is None else _checkpoint(spark, query_id))


def _checkpoint(spark: Any, query_id: str) -> str | None:
    """From Spark's inside: it is in no option that foreachBatch sees. Who does without loses little."""
    try:
        key = spark.sparkContext._jvm.java.util.UUID.fromString(query_id)
        running = spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
        return str(running.resolvedCheckpointRoot())
    except Exception:
        return None
