"""The identity of a write and of its content, by which a repeat is recognized and skipped.

Different content under the same identity is an error. Content is identified by its rows, and by Spark's
plan of the micro-batch. One match is enough: a replayed batch may compute different rows, and a new
checkpoint may bring the same rows again. Rows and plan are stored with the ids of the target topics,
because the same rows in another topic are another write.

Spark takes the batches of its checkpoint as written. A target that is another file, or an older copy, lacks
them. The batch ids do not show this, because a query may skip ids. So a note in the checkpoint has the
files' ids and marks. It has no paths, because a link may lead to another file, and a file may be moved
(decisions/0057).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import marshal
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import repeat
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

import eosdb
from eosdb import errors
from eosdb.admin import summary
from eosdb.admin.tools import Tools
from eosdb.model.damage import parsed
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.planning.files import local
from eosdb.spark_io.writing.outgoing import Outgoing, values

LOCATION: Final = "spark.sql.streaming.checkpointLocation"
_FOLDER: Final = "eosdb"
"""The folder of the notes in a checkpoint, beside Spark's own folders."""
_NEW_NAME: Final = (
    "set a new name (option sinkId; foreach_batch: sink_id; write: writeName or txn_app_id), or write "
    "everything again with a new checkpoint"
)
PUT_BACK: Final = "Put the newest file back; or keep the present file, and " + _NEW_NAME


class Written(NamedTuple):
    """The batches of a sink in one file, the mark of the file's history after the last batch, and the
    topics' ids by name."""

    mark: str
    first: int
    last: int
    topics: Mapping[str, str] = {}


class LastWrite(NamedTuple):
    """The note about one sink of a query, in a file of the checkpoint."""

    note: Path
    sink: str

    def files(self) -> dict[str, Written]:
        """The query's writes by file id."""
        with contextlib.suppress(OSError, ValueError):  # The note is missing or truncated.
            found: dict[str, list[Any]] = parsed(self.note.read_text())
            return {file_id: Written(*written) for file_id, written in found.items()}
        return {}

    def check(self, db: eosdb.Database, batch_id: int) -> None:
        """Raises SparkOptionError if the file lacks earlier writes of the query."""
        files, file_id = self.files(), db.broker.cluster_id()
        if (here := files.get(file_id)) is not None:
            if (why := Tools(db.admin).history_departure(here.mark)) is not None:
                raise SparkOptionError(
                    f"{db.path}: when the query last wrote here, the file had its batches up to "
                    f"{here.last} (of {self.sink!r}); now it has another history, and may lack some of "
                    f"them: {why}. {PUT_BACK}"
                )
            return
        # A query may write to several files under one name, but each must have got the first batch.
        for other, written in files.items():
            if written.first < batch_id:
                raise SparkOptionError(
                    f"{db.path}: the query has written its batches up to {written.last} (of "
                    f"{self.sink!r}) to the file with the id {other}; this is another file: its id is "
                    f"{file_id}, and it lacks them. {PUT_BACK}. To write to a second file, use "
                    "another name"
                )

    def check_topics(self, db: eosdb.Database, topics: Mapping[str, str]) -> None:
        """Raises OtherTargetError if a topic with earlier writes of the query was deleted."""
        here = self.files().get(db.broker.cluster_id())
        for name, now in topics.items():
            if here is not None and here.topics.get(name, now) != now:
                raise OtherTargetError(
                    f"{db.path}: the query's batches up to {here.last} (of {self.sink!r}) went to a "
                    f"deleted topic (id {here.topics[name]}); topic {name} (id {now}) is a new one. To go "
                    f"on, {_NEW_NAME}"
                )

    def keep(
        self, db: eosdb.Database, batch_id: int, topics: Mapping[str, str] | None = None
    ) -> None:
        """Store the present mark. After a crash just before this, the older note is still valid."""
        files, file_id = self.files(), db.broker.cluster_id()
        before = files.get(file_id, Written("", batch_id, batch_id))
        files[file_id] = Written(
            Tools(db.admin).history_mark(),
            before.first,
            batch_id,
            {**before.topics, **(topics or {})},
        )
        with contextlib.suppress(OSError):
            self.note.parent.mkdir(exist_ok=True)
            new = self.note.with_suffix(f".{uuid.uuid4().hex}")
            new.write_text(json.dumps(files))
            new.replace(self.note)


def last_write_of(checkpoint: str | None, sink: str) -> LastWrite | None:
    """The note about the sink; None if the checkpoint is not a folder on this host."""
    if checkpoint is None or not os.path.isdir(folder := local(checkpoint)):
        return None
    name = hashlib.blake2b(sink.encode(), digest_size=10).hexdigest()
    return LastWrite(Path(folder, _FOLDER, name), sink)


def checkpoint_of(location: str | None, name: str | None, query_id: str | None) -> str | None:
    """The checkpoint of a query: the folder, or below it if the session names only the parent
    (`LOCATION`), where Spark uses the query's name, or a random one. None if this host does not have it."""
    if location is None or query_id is None:
        return None
    with contextlib.suppress(OSError):
        root = Path(local(location))
        by_age = sorted(root.iterdir(), key=lambda one: one.stat().st_mtime_ns, reverse=True)
        for folder in [root, *([root / name] if name else []), *by_age]:
            with contextlib.suppress(OSError, ValueError):
                if parsed((folder / "metadata").read_text()).get("id") == query_id:
                    return str(folder)
    return None


def newest_batch(checkpoint: str | None) -> int | None:
    """The micro-batch that the query runs: Spark notes its offsets before it."""
    if checkpoint is not None:
        with contextlib.suppress(OSError, ValueError):
            return max(map(int, filter(str.isdigit, os.listdir(Path(checkpoint, "offsets")))))
    return None


_DIGEST_SIZE: Final = 2**128
_DIGEST: Final = methodcaller("digest")
_NUMBER: Final[Callable[[bytes, Any], int]] = int.from_bytes
_TEXT: Final = "rows2"
"""The prefix of a text that identifies rows."""
_NOWHERE: Final = "nowhere"
"""The id of a missing topic, which gets no rows."""
_PLAN: Final = "plan "
_TO: Final = " to "
"""Separates the content of a batch from its target topics."""


class StagedRows(NamedTuple):
    """The number of rows and the sum of their hashes. Order and batching do not change it."""

    size: int = 0
    digest: int = 0

    def __str__(self) -> str:
        return f"{_TEXT} {self.size}:{self.digest:032x}"


def rows_of(batches: Iterable[pa.RecordBatch]) -> StagedRows:
    """Identify the rows of Arrow batches whose keys and values are binary."""
    return total(StagedRows(batch.num_rows, _sum(batch)) for batch in batches)


def topics_of(batches: Iterable[pa.RecordBatch]) -> set[str]:
    return {
        name for batch in batches for name in batch.column("topic").unique().to_pylist() if name
    }


def _sum(batch: pa.RecordBatch) -> int:
    """Sum the rows' hashes, without Python bytecode for each row."""
    rows = zip(*map(values, batch.columns), strict=True)
    # Version 0 of marshal gives equal bytes for equal values; later versions depend on reference counts.
    hashes = map(hashlib.blake2b, map(marshal.dumps, rows, repeat(0)))
    return sum(map(_NUMBER, map(_DIGEST, hashes), repeat("little")))


def total(parts: Iterable[StagedRows]) -> StagedRows:
    size = digest = 0
    for part in parts:
        size += part.size
        digest += part.digest
    return StagedRows(size, digest % _DIGEST_SIZE)


def plan_of(checkpoint: str | None, query_id: str | None, batch_id: int) -> str | None:
    """A digest of the offsets and the time that Spark stores in the checkpoint before it runs the
    micro-batch. None if it cannot be read here; then only the rows identify the content."""
    if checkpoint is None:
        return None
    try:
        with open(os.path.join(local(checkpoint), "offsets", str(batch_id)), "rb") as file:
            return f"{_PLAN}{query_id}:{hashlib.sha256(file.read()).hexdigest()[:32]}"
    except OSError:
        return None


def sink_of(owner: str, which: str | None = None, order: int = 0) -> str:
    """Build the sink id. `owner` is a query or a job, `which` distinguishes its writes by topic or name,
    and `order` numbers several such writes in one batch."""
    return f"spark:{owner}" + (f"/{which}" if which else "") + (f"#{order}" if order else "")


class Content(NamedTuple):
    """The content of a write, and the texts that identify it."""

    batches: Iterable[pa.RecordBatch]
    rows: StagedRows
    topics: Collection[str]
    plan: str | None = None
    notes: tuple[str, ...] = ()
    """Texts to store with the batch, which identify nothing."""
    is_numbered: bool = False
    """Whether the query and its batch number identify the write, without a name from the user."""

    @property
    def held(self) -> tuple[str, ...]:
        return (str(self.rows),) if self.plan is None else (str(self.rows), self.plan)

    def repeats_without_plan(self, batch_id: int, error: errors.BatchDiffersError) -> bool:
        """Whether the stored batch is this one, and was stored when its plan could not be read."""
        planned = any(text.startswith(_PLAN) for text in error.held)
        is_it = self.is_numbered and self.plan is not None and error.newest == batch_id
        return is_it and bool(error.held) and not planned


def bring_in(
    db: eosdb.Database,
    sink_id: str,
    batch_id: int,
    outgoing: Outgoing,
    content: Content,
    last_write: LastWrite | None = None,
    *,
    consecutive: bool = False,
) -> eosdb.AppendOnceResult:
    """Append the content exactly once. Raises BatchDiffersError, with advice, and SparkOptionError if the
    file lacks earlier batches of the same query."""
    if last_write is not None:
        last_write.check(db, batch_id)
    if consecutive and content.is_numbered and batch_id:
        _check_known(db, sink_id, batch_id, last_write)
    # decisions/0057: with another topic id, the same rows are another write.
    ids = {topic: _id_of(db, topic, may_create=content.rows.size > 0) for topic in content.topics}
    there = _together(ids.values())
    known = {topic: id_ for topic, id_ in ids.items() if id_ != _NOWHERE}
    if last_write is not None:
        last_write.check_topics(db, known)
    held = [f"{text}{_TO}{there}" for text in content.held]
    try:
        # decisions/0014: the driver appends the rows and stores the batch id in the same unit.
        result = db.append_once(
            sink_id, batch_id, outgoing.pairs(content.batches), held=(*held, *content.notes),
            consecutive=consecutive,
        )  # fmt: skip
    except errors.BatchDiffersError as error:
        explained = _explained(db, error, ids, there)
        is_other = isinstance(explained, OtherTargetError)
        if is_other or not content.repeats_without_plan(batch_id, error):
            raise explained from error
        result = eosdb.AppendOnceResult(skipped=True, offsets={})
    except errors.OutOfOrderSequenceNumberError as error:
        raise SparkOptionError(f"{db.path}: {error}. {PUT_BACK}") from error
    if last_write is not None:
        last_write.keep(db, batch_id, known)
    return result


def is_taken(db: eosdb.Database, sink_id: str, batch_id: int) -> bool:
    """Whether the file has this batch of the sink, or a later one."""
    return bool(db.query(summary.SINK_BATCH, (sink_id, batch_id)).all())


def _check_known(
    db: eosdb.Database, sink_id: str, batch_id: int, last_write: LastWrite | None
) -> None:
    """Raises SparkOptionError if nothing shows that the file has the earlier batches of the query."""
    if last_write is not None and last_write.files():
        return
    if not is_taken(db, sink_id, 0):
        raise SparkOptionError(
            f"{db.path}: the query already wrote batches up to {batch_id - 1}, but this file does not know "
            "them, and the checkpoint has no note of them. Nothing was appended. A file forgets batches "
            f"idempotency_retention_ms after the last one. {PUT_BACK}"
        )


def _id_of(db: eosdb.Database, topic: str, *, may_create: bool) -> str:
    """The topic's id. The topic of an empty write need not exist."""
    try:
        return str(db.broker.topic(topic, may_create=may_create).topic_id)
    except errors.UnknownTopicOrPartitionError:
        if may_create:
            raise
        return _NOWHERE


def _together(ids: Iterable[str]) -> str:
    """Combine the ids of several topics into a short text."""
    match sorted(ids):
        case [one]:
            return one
        case several:
            return hashlib.blake2b("\n".join(several).encode(), digest_size=16).hexdigest()


def _explained(
    db: eosdb.Database, error: errors.BatchDiffersError, ids: Mapping[str, str], there: str
) -> errors.BatchDiffersError:
    went_to = {text.partition(_TO)[2] for text in error.held} - {"", there}
    if not went_to:
        return errors.BatchDiffersError(
            f"{error}. A query with a new checkpoint counts its batches from 0 again: leave out its sinkId "
            "(of foreach_batch: sink_id), or give a new one. Of several writes with one txnAppId and "
            "txnVersion each needs a writeName",
            error.newest,
            error.held,
        )
    names = {str(one.topic_id): one.name for one in db.broker.topic_metadata()}
    other = min(went_to)
    where = f"topic {names[other]}" if other in names else "a deleted topic, or to others"
    now = ", ".join(f"{name} (id {id_})" for name, id_ in sorted(ids.items()))
    return OtherTargetError(
        f"{db.path}: {error}: that went to {where} (id {other}), and this would go to {now}. Each target "
        "has a query, a job or a name of its own: a topic that was recreated, or another one, needs a new "
        "sinkId (of foreach_batch: sink_id), or a new txnAppId or txnVersion, or a new checkpoint",
        error.newest,
        error.held,
    )
