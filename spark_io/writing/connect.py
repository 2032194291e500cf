"""Finds the query of a function for `foreachBatch` over Spark Connect.

Spark calls the function in a process of its own, with a session cloned for the query, and names the query
nowhere. The session that started the query lists its queries, and each explains itself under the settings
of its own clone. So the query is the one whose text changes with a setting of the clone.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from typing import Any, Final

from eosdb.spark_io.writing.writes import LOCATION, checkpoint_of

QUERY: Final = "spark.sql.eosdb.query"
"""A setting of the clone: the query's id, run and checkpoint, for the tasks of `df.write`."""
_HIDDEN: Final = "spark.sql.redaction.string.regex"
_SINK: Final = "ForeachBatchSink"
_CHECKPOINT: Final = re.compile(r"checkpointLocation=(.*)\], \w+, \d+$", re.I | re.M)
_LOCK: Final = threading.Lock()
_FOUND: Final[dict[str, tuple[str, str, str | None]]] = {}
"""The queries that were found, by the clone's id."""


def query() -> tuple[Any, ...]:
    """The fields of a `Query`. Empty outside of such a function; without id if the query is not found."""
    names: dict[str, Any] = {}
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:  # The worker's variables replace those of the function.
        if frame.f_globals.get("__name__") == "__main__":
            names |= frame.f_locals
        frame = frame.f_back
    if not {"batch_df", "spark_connect_session"} <= names.keys():
        return ()
    clone = names["batch_df"].sparkSession
    with _LOCK:
        found = _FOUND.get(clone.session_id)
        if found is None and (found := _search(clone, names["spark_connect_session"])):
            _FOUND[clone.session_id] = found
            clone.conf.set(QUERY, json.dumps(found))
    is_its_thread = threading.current_thread() is threading.main_thread()
    return (*(found or [None] * 3), names["batch_id"], is_its_thread)


def _search(clone: Any, starter: Any) -> tuple[str, str, str | None] | None:
    active, before = starter.streams.active, clone.conf.get(_HIDDEN, None)
    clone.conf.set(_HIDDEN, _SINK)
    try:
        hidden = [one.id for one in active if _SINK not in _explained(one)]
    finally:
        clone.conf.unset(_HIDDEN) if before is None else clone.conf.set(_HIDDEN, before)
    for one in active:
        if one.id in hidden and _SINK in (text := _explained(one)):
            match = _CHECKPOINT.search(text)
            parts = match[1].split(", ") if match else [clone.conf.get(LOCATION, None) or ""]
            # Other options may follow, and a path may have any text.
            paths = [", ".join(parts[:count]) for count in range(1, len(parts) + 1)]
            found = (checkpoint_of(path, one.name, one.id) for path in paths if path)
            return one.id, one.runId, next(filter(None, found), None)
    return None


def _explained(query: Any) -> str:
    from pyspark.sql.connect.proto import StreamingQueryCommand

    command = StreamingQueryCommand()
    command.explain.extended = True
    with contextlib.suppress(Exception):  # The query has ended.
        return str(query._execute_streaming_query_cmd(command).explain.result)
    return ""
