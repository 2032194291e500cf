"""The identity of a write, and of its content. The identity recognizes it when Spark repeats it; it counts
as a repeat only if the content is the same, and different content under its key is an error.

The content is identified twice: by its rows, and by Spark's plan of the micro-batch. Either is enough: rows
may come out differently when a batch is replayed, and a new checkpoint may bring the same rows again.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

import eosdb
from eosdb.errors import BatchDiffersError

from .files import local
from .outgoing import Pair, values

_DIGEST_SIZE: Final = 2**128


class Rows(NamedTuple):
    """The number of rows, and the sum of their hashes: independent of their order and batches."""

    size: int = 0
    digest: int = 0

    def __str__(self) -> str:
        return f"rows {self.size}:{self.digest:032x}"


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    """For Arrow batches whose keys and values are binary."""
    return total(
        Rows(
            batch.num_rows,
            sum(
                # Version 0 of marshal writes equal values alike, whoever else refers to them.
                int.from_bytes(hashlib.sha256(marshal.dumps(row, 0)).digest(), "big")
                for row in zip(*map(values, batch.columns), strict=True)
            ),
        )
        for batch in batches
    )


def total(parts: Iterable[Rows]) -> Rows:
    size = digest = 0
    for part in parts:
        size += part.size
        digest += part.digest
    return Rows(size, digest % _DIGEST_SIZE)


def plan_of(checkpoint: str | None, query_id: str | None, batch_id: int) -> str | None:
    """A digest of what Spark stores in the checkpoint about the micro-batch before it runs: the sources'
    offsets and the time. None if that cannot be read here; then the rows must do."""
    if checkpoint is None:
        return None
    try:
        with open(os.path.join(local(checkpoint), "offsets", str(batch_id)), "rb") as file:
            return f"plan {query_id}:{hashlib.sha256(file.read()).hexdigest()[:32]}"
    except OSError:
        return None


def sink_of(owner: str, which: str | None = None, order: int = 0) -> str:
    """The name of a sink in eosdb. `owner` is a query or a job, `which` distinguishes its writes by topic
    or name, and `order` counts several of those in one batch."""
    return f"spark:{owner}" + (f"/{which}" if which else "") + (f"#{order}" if order else "")


def bring_in(
    db: eosdb.Database, sink_id: str, batch_id: int, pairs: Iterable[Pair], *held: str | None
) -> eosdb.AppendOnceResult:
    """Append once. Raises BatchDiffersError, which says what to do."""
    said = tuple(text for text in held if text is not None)
    try:
        # decisions/0014: the driver appends, and the proof goes into the same unit.
        return db.append_once(sink_id, batch_id, pairs, held=said)
    except BatchDiffersError as error:
        raise BatchDiffersError(
            f"{error}. A query with a new checkpoint counts its batches from 0 again: leave out its sinkId "
            "(of foreach_batch: sink_id), or give a new one. Of several writes with one txnAppId and "
            "txnVersion each needs a writeName",
            error.newest,
        ) from error


class Calls:
    """Numbers the writes to one place within one run of a micro-batch, so that each has a key of its own.

    The same rows are the same write, so that a failed one may be tried again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[object, dict[Rows, int]]] = {}

    def number(self, place: str, run: object, rows: Rows) -> int:
        """`run` identifies one run, even of the same micro-batch."""
        with self._lock:
            known, numbers = self._runs.get(place, (run, {}))
            if known != run:
                numbers = {}
            self._runs[place] = (run, numbers)
            return numbers.setdefault(rows, len(numbers))
