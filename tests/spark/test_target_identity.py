"""An acknowledged batch is in its target exactly once, or the query stops: also if the session names the
checkpoint, if a path leads to another file, and if the rows of a replay differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.spark_io import foreach_batch, read_stream, write
from eosdb.spark_io.writing.last_write import checkpoint_of
from tests.spark.test_another_file import remove
from tests.spark.test_repeats import (
    LARGE,
    SMALL,
    append,
    each_batch,
    forget_last_batch,
    numbers_in,
    pipe,
)
from tests.spark.test_threads import in_threads
from tests.spark.test_writing import out

pytestmark = pytest.mark.spark

__all__ = ["pipe"]

OTHER_FILE = r"batches up to 0 .* another file: its id is .* it lacks them.*newest file back"


def make(path: Path) -> Path:
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("more")
    return path


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A session that names the folder of all checkpoints, as on clusters."""
    made = spark.newSession()
    made.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    yield made
    made.conf.unset("spark.sql.streaming.checkpointLocation")


def copy(session: Any, source: Path, target: Path, value: str = "value") -> None:
    query = (
        read_stream(session, source, subscribe="orders", startingOffsets="earliest")
        .selectExpr(f"{value} AS value")
        .writeStream.format("eosdb")
        .queryName("copy")
        .option("topic", "more")
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()


def test_a_sessions_checkpoint_is_found_and_knows_its_target(
    session: Any, pipe: Path, tmp_path: Path
) -> None:
    target = make(tmp_path / "target.db")
    copy(session, pipe, target)
    append(pipe, range(100, 150))
    remove(target)
    make(target)
    with pytest.raises(Exception, match=OTHER_FILE):
        copy(session, pipe, target)
    assert numbers_in(target, "more") == []


def test_rows_of_a_replay_may_differ_also_under_a_sessions_checkpoint(
    session: Any, pipe: Path, tmp_path: Path
) -> None:
    copy(session, pipe, pipe, "uuid()")
    forget_last_batch(tmp_path / "checkpoints" / "copy")
    append(pipe, range(100, 110))
    copy(session, pipe, pipe, "uuid()")
    assert len(out(pipe, "more")) == 110


@pytest.mark.parametrize("name", ["copy", None], ids=["named", "unnamed"])
def test_a_checkpoint_is_found_by_the_query_and_not_by_its_name(
    tmp_path: Path, name: str | None
) -> None:
    for folder, query_id in (("copy", "another"), ("random", "mine"), ("third", "third")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "metadata").write_text(f'{{"id":"{query_id}"}}')
    (tmp_path / "file").write_text("")
    for location in (f"file:{tmp_path}", str(tmp_path)):
        assert checkpoint_of(location, name, "mine") == str(tmp_path / "random")
    assert checkpoint_of(str(tmp_path), name, "gone") is None
    assert checkpoint_of("s3://bucket/checkpoints", name, "mine") is None
    assert checkpoint_of(None, name, "mine") is None


def test_a_file_that_knows_no_batch_is_refused_where_no_note_can_be_read(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    """As with a checkpoint on another host: the note is gone, and the file is empty."""
    target = make(tmp_path / "target.db")

    def run(**options: str) -> None:
        query = (
            read_stream(spark, pipe, subscribe="orders", startingOffsets="earliest")
            .selectExpr("value")
            .writeStream.format("eosdb")
            .option("topic", "more")
            .option("checkpointLocation", str(tmp_path / "cp"))
            .options(**options)
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()

    run()
    for note in (tmp_path / "cp" / "eosdb").iterdir():
        note.unlink()
    append(pipe, range(100, 110))
    remove(target)
    make(target)
    with pytest.raises(Exception, match=r"batches up to 0, and neither this file .* knows of them"):
        run()
    assert numbers_in(target, "more") == []
    run(sinkId="go on")
    assert numbers_in(target, "more") == list(range(100, 110))


Way = Callable[[Any, Path, Path, Path, str], None]


def by_stream(spark: Any, source: Path, checkpoint: Path, target: Path, value: str) -> None:
    query = (
        read_stream(spark, source, subscribe="orders", startingOffsets="earliest")
        .selectExpr(f"{value} AS value")
        .writeStream.format("eosdb")
        .option("topic", "more")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()


def by_foreach_batch(spark: Any, source: Path, checkpoint: Path, target: Path, value: str) -> None:
    sink = foreach_batch(target, topic="more")

    def work(frame: Any, batch_id: int) -> None:
        sink(frame.selectExpr(f"{value} AS value"), batch_id)

    each_batch(spark, source, checkpoint, work)


def by_write(spark: Any, source: Path, checkpoint: Path, target: Path, value: str) -> None:
    def work(frame: Any, batch_id: int) -> None:
        write(frame.selectExpr(f"{value} AS value"), target, topic="more")

    each_batch(spark, source, checkpoint, work)


def by_write_of_a_job(spark: Any, source: Path, checkpoint: Path, target: Path, value: str) -> None:
    def work(frame: Any, batch_id: int) -> None:
        rows = frame.selectExpr(f"{value} AS value")
        write(rows, target, topic="more", txn_app_id="job", txn_version=batch_id)

    each_batch(spark, source, checkpoint, work)


WAYS = [by_stream, by_foreach_batch, by_write, by_write_of_a_job]


@pytest.mark.parametrize(
    ("way", "how"),
    [
        (by_stream, "link"),
        (by_foreach_batch, "path"),
        (by_write, "link"),
        (by_write_of_a_job, "empty"),
    ],
)
def test_a_query_goes_on_in_the_file_in_which_its_batches_are(
    spark: Any, pipe: Path, tmp_path: Path, way: Way, how: str
) -> None:
    first, second, link = make(tmp_path / "a.db"), make(tmp_path / "b.db"), tmp_path / "link.db"
    link.symlink_to(first)
    named = {"link": link, "path": first, "empty": first}[how]
    way(spark, pipe, tmp_path / "cp", named, "value")
    append(pipe, range(100, 150))
    if how == "link":
        link.unlink()
        link.symlink_to(second)
    elif how == "path":
        named = second
    else:
        remove(first)
        second.rename(first)
    with pytest.raises(Exception, match=OTHER_FILE):
        way(spark, pipe, tmp_path / "cp", named, "value")
    assert numbers_in(first if how == "empty" else second, "more") == []
    if how == "link":  # The same file, wherever it is.
        first.rename(tmp_path / "moved.db")
        way(spark, pipe, tmp_path / "cp", tmp_path / "moved.db", "value")
        assert numbers_in(tmp_path / "moved.db", "more") == list(range(150))


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_with_other_rows_is_skipped(
    spark: Any, pipe: Path, tmp_path: Path, way: Way
) -> None:
    way(spark, pipe, tmp_path / "cp", pipe, "uuid()")
    forget_last_batch(tmp_path / "cp")
    append(pipe, range(100, 150))
    way(spark, pipe, tmp_path / "cp", pipe, "uuid()")  # The replay, and a batch more.
    assert len(out(pipe, "more")) == 150


@pytest.mark.parametrize("where", ["a thread", "Spark's own write"])
def test_a_replay_whose_rows_differ_stops_where_the_order_of_writes_is_unknown(
    spark: Any, pipe: Path, tmp_path: Path, where: str
) -> None:
    other_rows = False

    def work(frame: Any, batch_id: int) -> None:
        value = "uuid() AS value" if other_rows else "value"
        for part in (SMALL, LARGE):
            rows = frame.where(part).selectExpr(value)
            if where == "a thread":
                in_threads(partial(write, rows, pipe, topic="more"))
            else:
                rows.write.format("eosdb").option("topic", "more").mode("append").save(str(pipe))

    each_batch(spark, pipe, tmp_path / "cp", work)
    assert numbers_in(pipe, "more") == list(range(100))
    forget_last_batch(tmp_path / "cp")
    other_rows = True
    with pytest.raises(Exception, match=r"batch 0 again, and these rows are not those"):
        each_batch(spark, pipe, tmp_path / "cp", work)

    def in_order(frame: Any, batch_id: int) -> None:
        for part in (SMALL, LARGE):
            write(frame.where(part).selectExpr("uuid() AS value"), pipe, topic="more")

    each_batch(spark, pipe, tmp_path / "cp", in_order)
    assert numbers_in(pipe, "more") == list(range(100)), "known by its place"


def test_a_query_may_write_to_several_files_from_its_first_batch_on(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    targets = [make(tmp_path / f"{name}.db") for name in "abc"]

    def run(count: int, **options: str) -> None:
        def work(frame: Any, batch_id: int) -> None:
            for target in targets[:count]:
                options_ = options if target == targets[2] else {}
                write(frame, target, topic="more", **options_)  # type: ignore[arg-type]

        each_batch(spark, pipe, tmp_path / "cp", work)

    run(2)
    forget_last_batch(tmp_path / "cp")
    run(2)
    append(pipe, range(100, 110))
    with pytest.raises(Exception, match="One more file beside the first needs a name of its own"):
        run(3)
    run(3, writeName="the third")
    assert [len(out(target, "more")) for target in targets] == [110, 110, 10]


def test_a_topic_that_was_made_anew_has_lost_the_querys_batches(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    by_stream(spark, pipe, tmp_path / "cp", pipe, "value")
    append(pipe, range(100, 110))
    with eosdb.connect(pipe, durability="off") as db:
        db.admin.delete_topic("more")
        db.admin.create_topic("more")
    with pytest.raises(Exception, match=r"topic more: the query's batches up to 0 .* made anew"):
        by_stream(spark, pipe, tmp_path / "cp", pipe, "value")
    assert numbers_in(pipe, "more") == []
