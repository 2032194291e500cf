"""How a target was when a query last wrote to it, in the query's checkpoint.

A target may be replaced by an older copy: then it lacks batches that Spark takes for written. Their numbers
do not show it, for a query may leave batches out; the mark of the file's history does (decisions/0057).
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


class Standing(NamedTuple):
    """Of one sink of one query in one file."""

    note: Path
    sink: str

    def check(self, db: eosdb.Database) -> None:
        """Raises SparkOptionError if the file lacks what the query wrote there."""
        try:
            mark, batch_id = parsed(self.note.read_text())
        except (
            OSError,
            ValueError,
        ):  # None yet, or cut off by a crash: an append has not needed it.
            return
        if (why := db.admin.history_departure(mark)) is not None:
            raise SparkOptionError(
                f"{db.path}: when the query last wrote here, the file had its batches up to {batch_id} (of "
                f"{self.sink!r}); now it has another history, and may lack some of them: {why}. {PUT_BACK}"
            )

    def keep(self, db: eosdb.Database, batch_id: int) -> None:
        """Note how the file is now. A crash before it leaves an older note, which holds as well."""
        with contextlib.suppress(OSError):
            self.note.parent.mkdir(exist_ok=True)
            new = self.note.with_suffix(f".{uuid.uuid4().hex}")
            new.write_text(json.dumps([db.admin.history_mark(), batch_id]))
            new.replace(self.note)


def standing_of(checkpoint: str | None, path: str | os.PathLike[str], sink: str) -> Standing | None:
    """None where the checkpoint is not a folder of this host."""
    if checkpoint is None or not os.path.isdir(folder := local(checkpoint)):
        return None
    place = f"{os.path.realpath(path)} {sink}"
    name = hashlib.blake2b(place.encode(), digest_size=10).hexdigest()
    return Standing(Path(folder, _FOLDER, name), sink)
