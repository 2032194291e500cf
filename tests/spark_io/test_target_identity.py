"""An acknowledged batch is in its target exactly once, or the query stops: also if the session names the
checkpoint, if a path leads to another file, and if the rows of a replay differ."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eosdb.errors import BatchDiffersError
from eosdb.spark_io import foreach_batch, write
from eosdb.spark_io.planning.errors import OtherTargetError, SparkOptionError
from eosdb.spark_io.writing.writes import checkpoint_of
from tests.spark_io.like_spark import LOCATION, Query, forget_last_batch, to_topic
from tests.spark_io.making import append, make, numbers_in, out, remove, topic_anew

from .test_repeats import large, other_rows, small

pytestmark = pytest.mark.slow

OTHER_FILE = r"batches up to 0 .* another file: its id is .* it lacks them.*newest file back"


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
    pipe: Path, tmp_path: Path
) -> None:
    """As with a checkpoint on another host: the note is gone, and the file is empty."""
    target = make(tmp_path / "target.db", topic="more")

    def run(**options: Any) -> None:
        sink = to_topic(target, "more", checkpointLocation=tmp_path / "cp", **options)
        Query(pipe, tmp_path / "cp").run(sink)

    run()
    for note in (tmp_path / "cp" / "eosdb").iterdir():
        note.unlink()
    append(pipe, range(100, 110))
    remove(target)
    make(target, topic="more")
    with pytest.raises(
        SparkOptionError, match=r"batches up to 0, but this file does not know them"
    ):
        run()
    assert numbers_in(target, "more") == []
    run(sinkId="go on")
    assert numbers_in(target, "more") == list(range(100, 110))


Change = Callable[[bytes], bytes] | None
Way = Callable[[Path, Path, Path, Change], None]


def changed(frame: Any, change: Change) -> Any:
    return frame if change is None else frame.map(change)


def by_stream(source: Path, checkpoint: Path, target: Path, change: Change) -> None:
    Query(source, checkpoint).run(to_topic(target, "more", change, checkpointLocation=checkpoint))


def under_a_sessions_checkpoint(
    source: Path, checkpoint: Path, target: Path, change: Change
) -> None:
    session = {LOCATION: f"file:{checkpoint.parent}"}
    Query(source, checkpoint, session=session).run(to_topic(target, "more", change))


def by_foreach_batch(source: Path, checkpoint: Path, target: Path, change: Change) -> None:
    sink = foreach_batch(target, topic="more")
    Query(source, checkpoint).run(lambda frame, batch_id: sink(changed(frame, change), batch_id))


def by_write(source: Path, checkpoint: Path, target: Path, change: Change) -> None:
    def work(frame: Any, batch_id: int) -> None:
        write(changed(frame, change), target, topic="more")

    Query(source, checkpoint).run(work)


def by_write_of_a_job(source: Path, checkpoint: Path, target: Path, change: Change) -> None:
    def work(frame: Any, batch_id: int) -> None:
        rows = changed(frame, change)
        write(rows, target, topic="more", txn_app_id="job", txn_version=batch_id)

    Query(source, checkpoint).run(work)


WAYS = [by_stream, under_a_sessions_checkpoint, by_foreach_batch, by_write, by_write_of_a_job]


@pytest.mark.parametrize(
    ("way", "how"),
    [
        *((by_stream, how) for how in ("link", "path", "empty")),
        (under_a_sessions_checkpoint, "empty"),
        (by_foreach_batch, "path"),
        (by_write, "link"),
        (by_write_of_a_job, "empty"),
    ],
)
def test_a_query_goes_on_in_the_file_in_which_its_batches_are(
    pipe: Path, tmp_path: Path, way: Way, how: str
) -> None:
    first, second = (make(tmp_path / f"{name}.db", topic="more") for name in "ab")
    link = tmp_path / "link.db"
    link.symlink_to(first)
    named = link if how == "link" else first
    way(pipe, tmp_path / "cp", named, None)
    append(pipe, range(100, 150))
    if how == "link":
        link.unlink()
        link.symlink_to(second)
    elif how == "path":
        named = second
    else:
        remove(first)
        second.rename(first)
    with pytest.raises(SparkOptionError, match=OTHER_FILE):
        way(pipe, tmp_path / "cp", named, None)
    assert numbers_in(first if how == "empty" else second, "more") == []
    if how == "link":  # The same file, wherever it is.
        first.rename(tmp_path / "moved.db")
        way(pipe, tmp_path / "cp", tmp_path / "moved.db", None)
        assert numbers_in(tmp_path / "moved.db", "more") == list(range(150))


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_with_other_rows_is_skipped(pipe: Path, tmp_path: Path, way: Way) -> None:
    way(pipe, tmp_path / "cp", pipe, other_rows)
    forget_last_batch(tmp_path / "cp")
    append(pipe, range(100, 150))
    way(pipe, tmp_path / "cp", pipe, other_rows)  # The replay, and a batch more.
    assert sorted(int(value.partition(b"-")[0]) for value in out(pipe, "more")) == list(range(150))


@pytest.mark.parametrize("where", ["a thread", "Spark's own write"])
def test_a_replay_whose_rows_differ_stops_where_the_order_of_writes_is_unknown(
    pipe: Path, tmp_path: Path, where: str
) -> None:
    change: Change = None

    def work(frame: Any, batch_id: int) -> None:
        for part in (small, large):
            rows = changed(frame.where(part), change)
            if where == "a thread":
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(write, rows, pipe, topic="more").result()
            else:
                rows.write.format("eosdb").options(topic="more").mode("append").save(str(pipe))

    Query(pipe, tmp_path / "cp").run(work)
    assert numbers_in(pipe, "more") == list(range(100))
    forget_last_batch(tmp_path / "cp")
    change = other_rows
    with pytest.raises(BatchDiffersError, match=r"batch 0 again, and these rows are not those"):
        Query(pipe, tmp_path / "cp").run(work)

    def in_order(frame: Any, batch_id: int) -> None:
        for part in (small, large):
            write(changed(frame.where(part), other_rows), pipe, topic="more")

    Query(pipe, tmp_path / "cp").run(in_order)
    assert numbers_in(pipe, "more") == list(range(100)), "known by its place"


def test_a_query_may_write_to_several_files_from_its_first_batch_on(
    pipe: Path, tmp_path: Path
) -> None:
    targets = [make(tmp_path / f"{name}.db", topic="more") for name in "abc"]

    def run(count: int, **options: str) -> None:
        def work(frame: Any, batch_id: int) -> None:
            for target in targets[:count]:
                options_ = options if target == targets[2] else {}
                write(frame, target, topic="more", **options_)  # type: ignore[arg-type]

        Query(pipe, tmp_path / "cp").run(work)

    run(2)
    forget_last_batch(tmp_path / "cp")
    run(2)
    append(pipe, range(100, 110))
    with pytest.raises(SparkOptionError, match="To write to a second file, use another name"):
        run(3)
    run(3, writeName="the third")
    assert [len(out(target, "more")) for target in targets] == [110, 110, 10]


def test_a_topic_that_was_made_anew_has_lost_the_querys_batches(pipe: Path, tmp_path: Path) -> None:
    by_stream(pipe, tmp_path / "cp", pipe, None)
    append(pipe, range(100, 110))
    topic_anew(pipe, topic="more")
    with pytest.raises(
        OtherTargetError,
        match=r"batches up to 0 .* deleted topic .*; topic more \(id .* is a new one",
    ):
        by_stream(pipe, tmp_path / "cp", pipe, None)
    assert numbers_in(pipe, "more") == []
