"""The lag of a streaming query, computed from the progress that Spark reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eosdb.model.damage import parsed
from eosdb.spark_io.planning.offsets import parse_offset


class OffsetsBehindLatest(NamedTuple):
    """Minimum, maximum and mean over all partitions, as in the metrics of Spark's Kafka source."""

    min: int
    max: int
    avg: float


def offsets_behind_latest(source: Mapping[str, Any]) -> OffsetsBehindLatest:
    """Compute how many offsets each partition of a source was behind when the micro-batch completed.

    `source` is an item of `query.lastProgress["sources"]`, because Python data sources cannot report
    metrics of their own. Without partitions all figures are 0.
    """
    end, latest = (_flat(_parsed(source.get(name))) for name in ("endOffset", "latestOffset"))
    behind = [max(offset - end.get(place, 0), 0) for place, offset in latest.items()]
    if not behind:
        return OffsetsBehindLatest(0, 0, 0.0)
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind))


def _flat(offsets: Any) -> dict[tuple[str, ...], int]:
    if offsets is None:
        return {}
    if not isinstance(offsets, Mapping):
        return {(): parse_offset(offsets).offset}
    return {
        (name, *rest): offset
        for name, nested in offsets.items()
        if not name.startswith("@")  # Not a topic but a file's path, or the skipped files.
        for rest, offset in _flat(nested).items()
    }


def _parsed(offsets: Any) -> Any:
    return parsed(offsets) if isinstance(offsets, str) else offsets
