"""The report of a write, as returned and as logged. A skipped batch is always reported: it may be a repeat,
or a user's mistake."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eosdb import AppendOnceResult, TopicPartition
from eosdb.model.damage import parsed
from eosdb.model.notices import catalog

from .micro_batch import Call


@dataclass(frozen=True, slots=True)
class WriteReport:
    """The result of a write: either all rows were appended, or none."""

    rows: int | None
    """The number of appended rows; None if unknown, as over Spark Connect to another host."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The first offset of the rows in each partition that got some."""
    skipped: bool = False
    why: str | None = None
    """Why the rows were skipped, as logged."""

    def say(self, path: str | os.PathLike[str]) -> None:
        """Log a warning if the rows were skipped."""
        if self.skipped:
            catalog.BATCH_LEFT_OUT.say(file=os.fspath(path), cause=self.why)

    def to_file(self, path: str, call: Call | None = None) -> None:
        """Write the report for the driver, because Spark passes nothing back from a commit."""
        offsets = [[*tp, offset] for tp, offset in self.offsets.items()]
        with contextlib.suppress(OSError):  # Over Spark Connect the folder may be on another host.
            Path(path).write_text(json.dumps([{**asdict(self), "offsets": offsets}, call]))


def of_file(path: str) -> tuple[WriteReport, Call | None]:
    """Return the report, and the call if it belongs to a micro-batch."""
    try:
        found, call = parsed(Path(path).read_text())
    except OSError:
        return WriteReport(None), None
    offsets = {TopicPartition(topic, number): offset for topic, number, offset in found["offsets"]}
    made = None if call is None else Call(*call)
    return WriteReport(**{**found, "offsets": offsets}), made


def of_result(result: AppendOnceResult, sink_id: str, batch_id: int, rows: int) -> WriteReport:
    if not result.skipped or not rows:
        return WriteReport(rows, result.offsets)
    return left_out(rows, f"batch {batch_id} of {sink_id!r} is in the file already")


def left_out(rows: int, why: str) -> WriteReport:
    return WriteReport(0, skipped=True, why=f"{rows} rows were not appended: {why}")
