"""Records a query's last write to a target, as a mark of the target's history in the query's checkpoint.

If a target is replaced by an older copy, it lacks batches that Spark considers written. The batch ids do
not reveal this, because a query may skip ids; comparing the marks does (decisions/0057).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Final, NamedTuple

import eosdb
from eosdb.model.damage import parsed
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.files import local

_FOLDER: Final = "eosdb"
"""In the checkpoint, beside Spark's own folders."""
PUT_BACK: Final = (
    "Put the newest file back; or go on with what is there under a new name (sinkId, of foreach_batch "
    "sink_id, of write writeName or txn_app_id), or write everything anew with a new checkpoint"
)


class LastWrite(NamedTuple):
    """The note about one sink of a query, in a file of the checkpoint."""

    note: Path
    sink: str

    def check(self, db: eosdb.Database) -> None:
        """Raises SparkOptionError if the file lacks what the query wrote there."""
        try:
            mark, batch_id = parsed(self.note.read_text())
        except (OSError, ValueError):  # No note yet, or one truncated by a crash.
            return
        if (why := db.admin.history_departure(mark)) is not None:
            raise SparkOptionError(
                f"{db.path}: when the query last wrote here, the file had its batches up to {batch_id} (of "
                f"{self.sink!r}); now it has another history, and may lack some of them: {why}. {PUT_BACK}"
            )

    def keep(self, db: eosdb.Database, batch_id: int) -> None:
        """Note the present mark. After a crash just before, the older note is still valid."""
        with contextlib.suppress(OSError):
            self.note.parent.mkdir(exist_ok=True)
            new = self.note.with_suffix(f".{uuid.uuid4().hex}")
            new.write_text(json.dumps([db.admin.history_mark(), batch_id]))
            new.replace(self.note)


def last_write_of(
    checkpoint: str | None, path: str | os.PathLike[str], sink: str
) -> LastWrite | None:
    """Return the note; None if the checkpoint is not a folder on this host."""
    if checkpoint is None or not os.path.isdir(folder := local(checkpoint)):
        return None
    place = f"{os.path.realpath(path)} {sink}"
    name = hashlib.blake2b(place.encode(), digest_size=10).hexdigest()
    return LastWrite(Path(folder, _FOLDER, name), sink)
