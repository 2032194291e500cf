"""Filters that Spark pushes down, as narrower ranges: a topic, partitions, files, and offsets.

A filter accepted here is exact, so Spark need not check it again; all others are returned to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .plan import Range

_BY_RANGE = {"topic": "topic", "partition": "partition", "source_file": "path"}
"""Columns that are constant within a range, and their names there."""


def narrow(ranges: list[Range], filters: Iterable[Filter]) -> tuple[list[Range], list[Filter]]:
    """The ranges that remain, and the filters that Spark has to apply itself."""
    left: list[Filter] = []
    for one in filters:
        narrowed = _by_range(ranges, one)
        if narrowed is None:
            narrowed = _by_offset(ranges, one)
        if narrowed is None:
            left.append(one)
        else:
            ranges = narrowed
    return ranges, left


def _by_range(ranges: list[Range], one: Filter) -> list[Range] | None:
    if not isinstance(one, EqualTo | In) or len(one.attribute) != 1:
        return None
    name = _BY_RANGE.get(one.attribute[0])
    if name is None:
        return None
    wanted = (one.value,) if isinstance(one, EqualTo) else one.value
    return [range_ for range_ in ranges if getattr(range_, name) in wanted]


def _by_offset(ranges: list[Range], one: Filter) -> list[Range] | None:
    if getattr(one, "attribute", None) != ("offset",):
        return None
    match one:
        case EqualTo():
            low, high = one.value, one.value + 1
        case GreaterThan():
            low, high = one.value + 1, None
        case GreaterThanOrEqual():
            low, high = one.value, None
        case LessThan():
            low, high = None, one.value
        case LessThanOrEqual():
            low, high = None, one.value + 1
        case _:
            return None
    return [
        range_._replace(
            start=range_.start if low is None else max(range_.start, low),
            end=range_.end if high is None else min(range_.end, high),
        )
        for range_ in ranges
    ]
