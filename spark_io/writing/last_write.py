"""A note in a query's checkpoint of the files that the query wrote, as marks of their histories.

Spark considers the batches of its checkpoint written. A target that is another file, or an older copy,
lacks them. The batch ids do not show this, because a query may skip ids; the file's id and the mark do.
The note holds ids and no paths: a link may point elsewhere, and a file may be moved (decisions/0057).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import eosdb
from eosdb.admin import summary
from eosdb.model.damage import parsed
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.planning.files import local

_FOLDER: Final = "eosdb"
"""In the checkpoint, beside Spark's own folders."""
PUT_BACK: Final = (
    "Put the newest file back; or go on with what is there under a new name (sinkId, of foreach_batch "
    "sink_id, of write writeName or txn_app_id), or write everything anew with a new checkpoint"
)


class Written(NamedTuple):
    """The batches of a sink in one file, the mark of the file's history after the last, and the ids of
    their topics, by name."""

    mark: str
    first: int
    last: int
    topics: Mapping[str, str] = {}


class LastWrite(NamedTuple):
    """The note about one sink of a query, in a file of the checkpoint."""

    note: Path
    earlier: Path
    """The note of earlier versions, which was named after the path of the target."""
    sink: str

    def files(self) -> dict[str, Written]:
        """The query's writes by file id."""
        with contextlib.suppress(OSError, ValueError):  # No note yet, or one truncated by a crash.
            found: dict[str, list[Any]] = parsed(self.note.read_text())
            return {file_id: Written(*written) for file_id, written in found.items()}
        with contextlib.suppress(OSError, ValueError):
            mark, batch_id = parsed(self.earlier.read_text())
            return {summary.id_in(mark): Written(mark, 0, batch_id)}
        return {}

    def check(self, db: eosdb.Database, batch_id: int) -> None:
        """Raises SparkOptionError if the file lacks earlier writes of the query."""
        files, file_id = self.files(), db.broker.cluster_id()
        if (here := files.get(file_id)) is not None:
            if (why := db.admin._history_departure(here.mark)) is not None:
                raise SparkOptionError(
                    f"{db.path}: when the query last wrote here, the file had its batches up to "
                    f"{here.last} (of {self.sink!r}); now it has another history, and may lack some of "
                    f"them: {why}. {PUT_BACK}"
                )
            return
        # A query may write to several files under one name if it does from its first batch on.
        for other, written in files.items():
            if written.first < batch_id:
                raise SparkOptionError(
                    f"{db.path}: the query has written its batches up to {written.last} (of "
                    f"{self.sink!r}) to the file with the id {other}; this is another file: its id is "
                    f"{file_id}, and it lacks them. {PUT_BACK}. One more file beside the first needs a "
                    "name of its own"
                )

    def check_topics(self, db: eosdb.Database, topics: Mapping[str, str]) -> None:
        """Raises OtherTargetError if a topic with earlier writes of the query was deleted."""
        here = self.files().get(db.broker.cluster_id())
        for name, now in topics.items():
            if here is not None and here.topics.get(name, now) != now:
                raise OtherTargetError(
                    f"{db.path}, topic {name}: the query's batches up to {here.last} (of {self.sink!r}) "
                    f"went to topics that are gone (id {here.topics[name]}), and this would go to {name} "
                    f"(id {now}), which was made anew. Go on under a new name (sinkId, of foreach_batch "
                    "sink_id, of write writeName or txn_app_id), or write everything anew with a new "
                    "checkpoint"
                )

    def keep(
        self, db: eosdb.Database, batch_id: int, topics: Mapping[str, str] | None = None
    ) -> None:
        """Note the present mark. After a crash just before, the older note is still valid."""
        files, file_id = self.files(), db.broker.cluster_id()
        before = files.get(file_id, Written("", batch_id, batch_id))
        files[file_id] = Written(
            db.admin._history_mark(), before.first, batch_id, {**before.topics, **(topics or {})}
        )
        with contextlib.suppress(OSError):
            self.note.parent.mkdir(exist_ok=True)
            new = self.note.with_suffix(f".{uuid.uuid4().hex}")
            new.write_text(json.dumps(files))
            new.replace(self.note)


def last_write_of(
    checkpoint: str | None, path: str | os.PathLike[str], sink: str
) -> LastWrite | None:
    """The note; None if the checkpoint is not a folder on this host."""
    if checkpoint is None or not os.path.isdir(folder := local(checkpoint)):
        return None
    note, earlier = (
        Path(folder, _FOLDER, hashlib.blake2b(name.encode(), digest_size=10).hexdigest())
        for name in (sink, f"{os.path.realpath(path)} {sink}")
    )
    return LastWrite(note, earlier, sink)


def checkpoint_of(location: str | None, name: str | None, query_id: str | None) -> str | None:
    """The checkpoint of a query whose session names only the parent folder
    (`spark.sql.streaming.checkpointLocation`), in which Spark uses the query's name, or a random one.
    None if this host does not have it."""
    if location is None or query_id is None:
        return None
    with contextlib.suppress(OSError):
        root = Path(local(location))
        by_age = sorted(root.iterdir(), key=lambda one: one.stat().st_mtime_ns, reverse=True)
        for folder in [*([root / name] if name else []), *by_age]:
            with contextlib.suppress(OSError, ValueError):
                if parsed((folder / "metadata").read_text()).get("id") == query_id:
                    return str(folder)
    return None
