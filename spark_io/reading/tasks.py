"""What a task reads, file by file, and which files it may leave out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import pyarrow as pa

from eosdb.errors import EosdbError
from eosdb.model.notices import catalog
from eosdb.spark_io.planning.options import ReadOptions
from eosdb.spark_io.planning.plan import Range
from eosdb.spark_io.planning.skipped import with_advice

from . import batches as reading


def batches(
    ranges: Iterable[Range], names: Sequence[str], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order. Of a file that fails on the way, what was read stays; the rest
    is left out if the options allow that, and else an error."""
    for path, of_file in itertools.groupby(ranges, key=attrgetter("path")):
        try:
            yield from reading.batches(tuple(of_file), names, options)
        except EosdbError as error:
            if not options.ignoring.allows(error):
                raise with_advice(error) from None
            catalog.REST_LEFT_OUT.say(file=path, cause=error)
