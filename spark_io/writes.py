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
from collections.abc import Callable, Iterable
from itertools import repeat
from operator import methodcaller
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

import eosdb
from eosdb.errors import BatchDiffersError

from .files import local
from .outgoing import Outgoing, values

_DIGEST_SIZE: Final = 2**128
_DIGEST: Final = methodcaller("digest")
_NUMBER: Final[Callable[[bytes, Any], int]] = int.from_bytes
_TEXT: Final = "rows2"
"""What the text about a batch's rows begins with; it was "rows" when the hashes were SHA-256."""


class _Hash(Protocol):
    def digest(self) -> bytes: ...


class Rows(NamedTuple):
    """The number of rows, and the sum of their hashes: independent of their order and batches."""

    size: int = 0
    digest: int = 0

    def __str__(self) -> str:
        return f"{_TEXT} {self.size}:{self.digest:032x}"


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    """For Arrow batches whose keys and values are binary."""
    return total(Rows(batch.num_rows, _sum(batch, hashlib.blake2b, "little")) for batch in batches)


def text_before(batches: Iterable[pa.RecordBatch]) -> str:
    """What earlier versions stored of the same rows: a replay of their last batch is recognized by it."""
    rows = total(Rows(batch.num_rows, _sum(batch, hashlib.sha256, "big")) for batch in batches)
    return str(rows).replace(_TEXT, "rows", 1)


def _sum(batch: pa.RecordBatch, make: Callable[[bytes], _Hash], order: str) -> int:
    """The sum of the rows' hashes. Nothing of Python's own runs for a row."""
    rows = zip(*map(values, batch.columns), strict=True)
    # Version 0 of marshal writes equal values alike, whoever else refers to them.
    hashes = map(make, map(marshal.dumps, rows, repeat(0)))
    return sum(map(_NUMBER, map(_DIGEST, hashes), repeat(order)))


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


class Content(NamedTuple):
    """What a write holds, and how to tell that it is a repeat."""

    read: Callable[[], Iterable[pa.RecordBatch]]
    """Its rows, as often as they are asked for."""
    rows: Rows
    plan: str | None = None

    @property
    def held(self) -> tuple[str, ...]:
        return (str(self.rows),) if self.plan is None else (str(self.rows), self.plan)


def bring_in(
    db: eosdb.Database, sink_id: str, batch_id: int, outgoing: Outgoing, content: Content
) -> eosdb.AppendOnceResult:
    """Append once. Raises BatchDiffersError, which says what to do."""

    def append(*held: str) -> eosdb.AppendOnceResult:
        # decisions/0014: the driver appends, and the proof goes into the same unit.
        return db.append_once(sink_id, batch_id, outgoing.pairs(content.read()), held=held)

    try:
        try:
            return append(*content.held)
        except BatchDiffersError:
            return append(*content.held, text_before(content.read()))
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
