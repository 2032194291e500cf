"""What a sink remembers is of one target: under its name another topic, a topic that was made anew or an
older copy of the file is refused by name or written to, and what is left out is told of."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

import eosdb
from eosdb.spark_io import foreach_batch, write
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.writing.outgoing import Outgoing, parse
from eosdb.spark_io.writing.sink import StreamWriter
from eosdb.spark_io.writing.writes import (
    Content,
    bring_in,
    last_write_of,
    rows_of,
    topics_of,
)
from tests.spark_io.like_spark import Query, forget_last_batch, frame, to_topic
from tests.spark_io.making import append, expected, make, numbers_in, out, remove, topic_anew

from .test_target_identity import WAYS, Way

pytestmark = pytest.mark.slow


def bring(
    path: Path,
    topic: str | None,
    *,
    sink: str = "sink",
    batch: int = 0,
    count: int = 10,
    consecutive: bool = False,
) -> eosdb.AppendOnceResult:
    """As the sinks do; without `topic` the rows name it."""
    table = pa.table({"value": [b"%d" % i for i in range(count)]})
    if topic is None:
        table = table.append_column("topic", pa.array(["good", "bad"] * (count // 2)))
    batches = table.to_batches()
    options = parse(
        {"path": str(path), **({} if topic is None else {"topic": topic})},
        {"value": "binary", "topic": "string"},
    )
    topics = topics_of(batches) if topic is None else {topic}
    content = Content(batches, rows_of(batches), topics, "plan x:y")
    with eosdb.connect(path, durability="off") as db:
        return bring_in(db, sink, batch, Outgoing(db, options), content, consecutive=consecutive)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "eosdb.spark_io" and record.levelno == logging.WARNING
    ]


@pytest.mark.parametrize("topic", ["good", None], ids=["by option", "by column"])
def test_a_batch_is_a_repeat_only_in_the_topic_that_it_went_to(
    pipe: Path, topic: str | None
) -> None:
    assert not bring(pipe, topic).skipped
    assert bring(pipe, topic).skipped
    topic_anew(pipe, topic="good")
    with pytest.raises(OtherTargetError, match=r"went to a deleted topic.* go to .*good \(id"):
        bring(pipe, topic)
    assert not bring(pipe, topic, batch=1).skipped, "the next batch is another one"
    assert not bring(pipe, topic, sink="another").skipped
    assert bring(pipe, topic, sink="another").skipped


def test_one_name_for_two_topics_is_refused_by_name(pipe: Path) -> None:
    bring(pipe, "good")
    for _ in range(2):
        with pytest.raises(OtherTargetError, match=r"batch 0.* went to topic good .* go to bad"):
            bring(pipe, "bad")
    assert numbers_in(pipe, "bad") == []
    bring(pipe, "bad", sink="another")
    assert numbers_in(pipe, "good") == numbers_in(pipe, "bad") == list(range(10))


def test_an_empty_batch_needs_no_topic(pipe: Path) -> None:
    assert not bring(pipe, "none-yet", count=0).skipped
    with eosdb.connect(pipe) as db:
        assert "none-yet" not in db.admin.list_topics()
    assert bring(pipe, "none-yet", count=0).skipped


def test_a_target_that_is_an_older_copy_is_refused_and_another_file_or_name_is_not(
    pipe: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "cp"
    checkpoint.mkdir()

    def stands(path: Path = pipe, sink: str = "sink") -> None:
        last_write = last_write_of(f"file:{checkpoint}", sink)
        assert last_write is not None
        with eosdb.connect(path) as db:
            last_write.check(db, 8)
            last_write.keep(db, 7)

    with eosdb.connect(pipe) as db:
        db.backup(tmp_path / "older.db")
    stands()
    append(pipe, range(3))
    stands()
    remove(pipe)
    shutil.copy(tmp_path / "older.db", pipe)
    for _ in range(2):
        with pytest.raises(
            SparkOptionError, match=r"batches up to 7.*'sink'.*older copy of the file"
        ):
            stands()
        append(pipe, range(9))
        with pytest.raises(SparkOptionError, match="older copy of the file"):
            stands(tmp_path / "older.db")
    stands(sink="a new one")
    for unknown in (None, str(tmp_path / "none"), "s3://bucket/cp"):
        assert last_write_of(unknown, "sink") is None


def test_a_stream_leaves_no_batch_out(pipe: Path) -> None:
    """Also where nothing can be noted in the checkpoint."""
    for batch in (4, 5):
        bring(pipe, "good", batch=batch, consecutive=True)
    with pytest.raises(SparkOptionError, match=r"newest batch is 5.*1 before .*newest file back"):
        bring(pipe, "good", batch=7, consecutive=True)
    assert len(numbers_in(pipe, "good")) == 20


def test_what_a_stream_leaves_out_is_logged_once(
    pipe: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"path": str(pipe), "topic": "good", "sinkId": "fixed"}
    rows = pa.table({"value": [b"a", b"b"]}).to_batches()
    for batch in (0, 0, 1):
        writer = StreamWriter(given, StructType().add("value", BinaryType()))
        writer.commit([writer.write(iter(rows if batch == 0 else []))], batch)
    assert logged(caplog) == [
        f"{pipe}: 2 rows were not appended: batch 0 of 'spark:fixed' is in the file already"
    ]


def test_write_returns_what_it_did_and_what_it_left_out_is_logged_once(
    target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(version: int) -> eosdb.spark_io.WriteReport:
        rows: Any = frame(range(30))
        return write(rows, target, topic="out", txn_app_id="nightly", txn_version=version)

    first = run(5)
    assert (first.rows, first.skipped, first.why) == (30, False, None)
    assert {tp.topic for tp in first.offsets} == {"out"}
    assert set(first.offsets.values()) == {0}
    caplog.clear()
    again = run(5)
    assert (again.rows, again.skipped, again.offsets) == (0, True, {})
    assert again.why is not None
    assert "30 rows were not appended: batch 5 of 'spark:nightly/out' is in the file" in again.why
    older = run(4)
    assert older.skipped
    assert older.why is not None
    assert "txnVersion 4 is older than 5" in older.why
    assert logged(caplog) == [f"{target}: {report.why}" for report in (again, older)]
    topic_anew(target, topic="out")
    with pytest.raises(OtherTargetError, match=r"went to a deleted topic.*txnVersion"):
        run(5)
    assert run(6).rows == 30
    assert out(target) == expected(30)


def test_a_sink_id_and_a_copied_checkpoint_belong_to_one_topic(pipe: Path, tmp_path: Path) -> None:
    def run(checkpoint: str, topic: str) -> None:
        sink = to_topic(pipe, topic, sinkId="fixed", checkpointLocation=tmp_path / checkpoint)
        Query(pipe, tmp_path / checkpoint).run(sink)

    run("one", "more")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    forget_last_batch(tmp_path / "copy")
    with pytest.raises(OtherTargetError, match=r"went to topic more .* go to bad .*new sinkId"):
        run("copy", "bad")
    run("copy", "more")
    assert numbers_in(pipe, "more") == list(range(100))
    assert numbers_in(pipe, "bad") == []


@pytest.mark.parametrize("way", WAYS)
def test_a_query_does_not_go_on_with_an_older_copy_of_its_target(
    pipe: Path, tmp_path: Path, way: Way
) -> None:
    into = make(tmp_path / "target.db", topic="more")
    with eosdb.connect(into) as db:
        db.backup(tmp_path / "older.db")
    way(pipe, tmp_path / "cp", into, None)
    assert numbers_in(into, "more") == list(range(100))
    remove(into)
    shutil.copy(tmp_path / "older.db", into)
    append(pipe, range(110, 120))
    with pytest.raises(
        SparkOptionError, match=r"batches up to \d.* older copy of the file.*newest file back"
    ):
        way(pipe, tmp_path / "cp", into, None)
    assert numbers_in(into, "more") == []


def test_a_function_may_leave_batches_out(
    pipe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = foreach_batch(pipe, topic="good")

    def work(frame: Any, batch_id: int) -> None:
        if batch_id % 3 == 2:
            sink(frame, batch_id)

    for _ in range(2):
        Query(pipe, tmp_path / "cp", maxOffsetsPerTrigger=12).run(work)
        forget_last_batch(tmp_path / "cp")
    assert len(numbers_in(pipe, "good")) == 12 + 12 + 4
    assert ["4 rows were not appended" in line for line in logged(caplog)] == [True]
