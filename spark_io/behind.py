"""How far a query is behind, from what Spark reports of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eosdb.model.damage import parsed

from .planning.offsets import parse_offset


class OffsetsBehindLatest(NamedTuple):
    """Over all partitions, as in the metrics of Spark's Kafka source."""

    min: int
    max: int
    avg: float


def offsets_behind_latest(source: Mapping[str, Any]) -> OffsetsBehindLatest:
    """How many offsets a source's partitions were behind when the micro-batch was done.

    `source` is one of `query.lastProgress["sources"]`. (Spark's Python data sources cannot report metrics
    of their own.) Zeros without partitions.
    """
    end, latest = (_flat(_parsed(source.get(name))) for name in ("endOffset", "latestOffset"))
    behind = [max(offset - end.get(place, 0), 0) for place, offset in latest.items()]
    if not behind:
        return OffsetsBehindLatest(0, 0, 0.0)
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind))


def _flat(offsets: Any) -> dict[tuple[str, ...], int]:
    """By topic and partition; in a fleet also by file."""
    if offsets is None:
        return {}
    if not isinstance(offsets, Mapping):
        return {(): parse_offset(offsets).offset}
    return {
        (name, *rest): offset
        for name, found in offsets.items()
        if not name.startswith("@")  # Where the file is, or what was left out; no topic's name.
        for rest, offset in _flat(found).items()
    }


def _parsed(offsets: Any) -> Any:
    """Spark reports an object, or its text."""
    return parsed(offsets) if isinstance(offsets, str) else offsets
