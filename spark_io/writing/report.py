"""What a write did, as it is returned and as it is logged. A batch that is left out is always told of: it
may be a repeat, and it may be somebody's mistake."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eosdb import AppendOnceResult, TopicPartition
from eosdb.model.damage import parsed
from eosdb.model.notices import catalog


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a write did: either all rows were appended, or none."""

    rows: int | None
    """How many were appended; None if that is not known here: over Spark Connect to another host."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The first offset in each partition that has some of them."""
    skipped: bool = False
    why: str | None = None
    """Why the rows were left out, as in the log."""

    def say(self, path: str | os.PathLike[str]) -> None:
        """Log that rows were left out of the file, if they were."""
        if self.skipped:
            catalog.BATCH_LEFT_OUT.say(file=os.fspath(path), cause=self.why)

    def to_file(self, path: str) -> None:
        """For the driver, to which Spark hands on nothing from a commit."""
        offsets = [[*tp, offset] for tp, offset in self.offsets.items()]
        with contextlib.suppress(OSError):  # Over Spark Connect it may be another host's.
            Path(path).write_text(json.dumps({**asdict(self), "offsets": offsets}))


def of_file(path: str) -> WriteReport:
    try:
        found = parsed(Path(path).read_text())
    except OSError:
        return WriteReport(None)
    offsets = {TopicPartition(topic, number): offset for topic, number, offset in found["offsets"]}
    return WriteReport(**{**found, "offsets": offsets})


def of_result(result: AppendOnceResult, sink_id: str, batch_id: int, rows: int) -> WriteReport:
    if not result.skipped or not rows:
        return WriteReport(rows, result.offsets)
    return left_out(rows, f"batch {batch_id} of {sink_id!r} is in the file already")


def left_out(rows: int, why: str) -> WriteReport:
    return WriteReport(0, skipped=True, why=f"{rows} rows were not appended: {why}")
