"""Streaming queries that end when they have read what there is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

_ATTEMPTS: Final = 25


def run(start: Callable[[], Any]) -> Any:
    """Start the query, and wait for its end. Spark waits for ten seconds, which no setting changes, until
    its source's process has begun. A crowded machine may take longer: then nothing has been read or
    written, and the query is started again."""
    from pyspark.errors import StreamingQueryException

    for attempt in count(1):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "connect back" not in str(error) or attempt == _ATTEMPTS:
                raise
        else:
            return query
    raise AssertionError
