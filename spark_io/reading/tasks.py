"""Reads the ranges of a task, file by file, and skips files as the options allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import pyarrow as pa

from eosdb.errors import EosdbError
from eosdb.model.notices import catalog
from eosdb.spark_io.planning.errors import with_advice
from eosdb.spark_io.planning.options import ReadOptions
from eosdb.spark_io.planning.plan import Range
from eosdb.spark_io.reading import batches as reading


def batches(
    ranges: Iterable[Range], names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, in order. If reading a file fails midway and the options allow to
    skip it, its earlier batches are kept and the rest is skipped. Otherwise the error is raised."""
    for path, of_file in itertools.groupby(ranges, key=attrgetter("path")):
        try:
            yield from reading.batches(tuple(of_file), names, options)
        except EosdbError as error:
            if not options.ignoring.allows(error):
                raise with_advice(error) from None
            catalog.REST_LEFT_OUT.say(file=path, cause=error)
