"""What a task does with a file: open it, scan its ranges, and yield Arrow batches."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence

import pyarrow as pa

from eosdb.arrow import records
from eosdb.errors import OffsetOutOfRangeError

from . import remote
from .plan import Range


def batches(
    ranges: Sequence[Range],
    names: Sequence[str],
    isolation_level: str,
    *,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges of one file, in order; there is at least one.

    Raises OffsetOutOfRangeError if retention has removed some of them since they were planned, unless
    `fail_on_data_loss` is False: then the rest is read. Raises CorruptRecordError for a damaged record.
    """
    with contextlib.ExitStack() as cleanup:
        # Millions of tuples without references: looking for cycles among them takes a sixth of the time.
        if gc.isenabled():
            gc.disable()
            cleanup.callback(gc.enable)
        path = ranges[0].path
        db = cleanup.enter_context(remote.connect(path))
        for source in ranges:
            try:
                yield from records.batches(
                    db,
                    source.topic_partition,
                    source.start,
                    source.end,
                    names,
                    isolation_level=isolation_level,
                    skip_lost=not fail_on_data_loss,
                    source_file=path,
                )
            except OffsetOutOfRangeError as error:
                raise OffsetOutOfRangeError(
                    f"{path}: {error}; retention or delete-records has taken records that were to be "
                    "read. Set failOnDataLoss=false to read what there is"
                ) from error
