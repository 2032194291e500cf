"""Checks that a checkpoint's offsets still belong to the files.

A checkpoint outlives the files. Before an offset is used, its file must be the same, with a history that
has only grown since, and its topic must not have been recreated.
"""

from __future__ import annotations

from typing import Final

from eosdb.model.notices import catalog
from eosdb.spark_io.planning.cut import Cut, other_file, other_topic
from eosdb.spark_io.planning.errors import SkippedFile, SparkOptionError
from eosdb.spark_io.planning.offsets import ONLY, Positions
from eosdb.spark_io.planning.options import ReadOptions


class Histories:
    """The checks of one stream reader, and the losses it has logged."""

    def __init__(self, options: ReadOptions) -> None:
        self._options: Final = options
        self.missing: tuple[SkippedFile, ...] = ()
        self._told: set[str] = set()

    def still_valid(self, positions: Positions, cut: Cut) -> Positions:
        """The positions without files of another history and without recreated topics, which are then
        read from their beginning. Raises SparkOptionError unless data loss is allowed."""
        gone: set[str] = set()
        others: set[tuple[str, str]] = set()
        for (key, tp), marked in positions.offsets.items():
            file = cut.files.get(key)
            if file is None or key in gone:
                continue
            if (why := other_file(tp, marked, file)) is not None:
                self.lost(
                    f"{file.path}, {tp}: the checkpoint is at offset {marked.offset}, but {why}. Give the "
                    "query a new checkpoint, or put the newest file back"
                )
                gone.add(key)
            elif (why := other_topic(tp, marked, file)) and (key, tp.topic) not in others:
                self.lost(
                    f"{file.path}, topic {tp.topic}: {why}, so the checkpoint's offsets are not of this "
                    "topic; what the query had not read of the other is gone. Give the query a new "
                    "checkpoint"
                )
                others.add((key, tp.topic))
        return positions.without(gone).without_topics(others)

    def lost(self, what: str) -> None:
        """Raises SparkOptionError unless data loss is allowed; then it is logged, once."""
        if self._options.fail_on_data_loss:
            raise SparkOptionError(f"{what}. Set failOnDataLoss=false to read what there is")
        if what in self._told:
            return
        self._told.add(what)
        catalog.LOSS_ACCEPTED.say(loss=what)

    def note_missing(self, positions: Positions, cut: Cut) -> None:
        """Find the missing files, whose offsets are kept. Raises SparkOptionError unless files may be
        missing."""
        keys = {key for key, _ in positions.offsets if key != ONLY and key not in cut.files}
        told, self.missing = {one.path for one in self.missing}, ()
        if not keys:
            return
        left_out = {one.path for one in cut.skipped}
        now_at = {file.path: file.file_id for file in cut.files.values()}
        missing = []
        for key in sorted(keys):
            path = positions.paths.get(key, key)
            if path in left_out:
                continue
            reason = (
                f"the file with the id {key}, which the checkpoint knows from there, is missing"
            )
            if path in now_at:
                reason += f"; there is another file: its id is {now_at[path]}"
            if not self._options.ignoring.missing and self._options.fail_on_data_loss:
                raise SparkOptionError(
                    f"{path}: {reason}. Put it back, in whatever place the query reads; or set "
                    "ignoreMissingFiles=true to go on without it: its offsets are kept"
                )
            if path not in told:
                catalog.FILE_LEFT_OUT.say(file=path, cause=reason)
            missing.append(SkippedFile(path, reason))
        self.missing = tuple(missing)
