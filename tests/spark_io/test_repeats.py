"""What counts as a repeat: each write of a micro-batch has a key of its own, and only what holds the same
is skipped. Spark repeats a micro-batch that is not in its commit log."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eosdb
from eosdb.errors import BatchDiffersError
from eosdb.spark_io import SparkOptionError, foreach_batch, write
from eosdb.spark_io.writing import connect
from eosdb.spark_io.writing.micro_batch import Call, Calls, MicroBatch
from eosdb.spark_io.writing.writes import StagedRows, rows_of, total
from tests.spark_io.like_spark import Query, Session, forget_last_batch, frame, to_topic
from tests.spark_io.making import append, expected, numbers_in, out


def small(number: int) -> bool:
    return number < 40


def large(number: int) -> bool:
    return number >= 40


def other_rows(value: bytes) -> bytes:
    return value + b"-" + uuid.uuid4().bytes


@pytest.mark.slow
def test_every_write_of_a_micro_batch_is_stored_once_also_when_the_batch_is_repeated(
    pipe: Path, tmp_path: Path
) -> None:
    good, bad = foreach_batch(pipe, topic="good"), foreach_batch(pipe, topic="bad")
    again = foreach_batch(pipe, topic="good")
    named = [foreach_batch(pipe, topic="more", writeName=name) for name in ("one", "two")]

    def work(frame: Any, batch_id: int) -> None:
        good(frame.where(small), batch_id)
        bad(frame.where(large), batch_id)
        again(frame.where(large), batch_id)
        for sink in named:
            sink(frame, batch_id)

    for _ in range(2):
        Query(pipe, tmp_path / "cp", maxOffsetsPerTrigger=60).run(work)
        assert numbers_in(pipe, "good") == list(range(100))
        assert numbers_in(pipe, "bad") == list(range(40, 100))
        assert numbers_in(pipe, "more") == sorted([*range(100)] * 2), "named, they are two writes"
        forget_last_batch(tmp_path / "cp")


@pytest.mark.slow
def test_jobs_within_a_micro_batch_are_stored_once_each(pipe: Path, tmp_path: Path) -> None:
    def work(frame: Any, batch_id: int) -> None:
        write(frame.where(small), pipe, topic="good")
        write(frame.where(large), pipe, topic="good")
        write(frame.where(large), pipe, topic="bad")
        for topic in ("bad", "more"):
            write(frame, pipe, topic=topic, txn_app_id="job", txn_version=batch_id)

    for _ in range(2):
        Query(pipe, tmp_path / "cp", maxOffsetsPerTrigger=60).run(work)
        assert numbers_in(pipe, "good") == list(range(100))
        assert numbers_in(pipe, "bad") == sorted([*range(100), *range(40, 100)])
        assert numbers_in(pipe, "more") == list(range(100))
        forget_last_batch(tmp_path / "cp")


@pytest.mark.slow
def test_a_new_checkpoint_under_an_old_sink_id_is_an_error_unless_it_brings_the_same(
    pipe: Path, tmp_path: Path
) -> None:
    def to_more(checkpoint: str, sink_id: str, start: str = "earliest") -> None:
        sink = to_topic(pipe, "more", sinkId=sink_id, checkpointLocation=tmp_path / checkpoint)
        Query(pipe, tmp_path / checkpoint, startingOffsets=start).run(sink)

    to_more("one", "fixed")
    to_more("two", "fixed")
    assert numbers_in(pipe, "more") == list(range(100)), "the same rows again"
    append(pipe, range(100, 150))
    new = '{"orders":{"0":100}}'
    for _ in range(2):
        with pytest.raises(
            BatchDiffersError, match=r"newest batch is 0, .* new checkpoint .* sinkId"
        ):
            to_more("three", "fixed", new)
    assert numbers_in(pipe, "more") == list(range(100))
    to_more("four", "another", new)
    assert numbers_in(pipe, "more") == list(range(150))


@pytest.mark.slow
def test_foreach_batch_with_a_fixed_sink_id_knows_a_new_checkpoint_too(
    pipe: Path, tmp_path: Path
) -> None:
    sink = foreach_batch(pipe, topic="good", sink_id="fixed")
    Query(pipe, tmp_path / "one", maxOffsetsPerTrigger=30).run(sink)
    append(pipe, range(100, 150))
    with pytest.raises(BatchDiffersError, match=r"newest batch is 3, .* sink_id"):
        Query(pipe, tmp_path / "two", startingOffsets='{"orders":{"0":100}}').run(sink)
    assert numbers_in(pipe, "good") == list(range(100))
    Query(pipe, tmp_path / "one").run(sink)
    assert numbers_in(pipe, "good") == list(range(150))


@pytest.mark.slow
def test_a_write_by_spark_whose_query_is_unknown_is_refused_unless_it_is_named(
    pipe: Path, tmp_path: Path
) -> None:
    """In a thread of the user's, and over Spark Connect, a task does not know its query; only its session
    shows that Spark cloned it for one. Over Spark Connect `write` leaves a setting that names the query."""

    def run(*, connected: bool = False, keep: Any = bool, **options: str) -> None:
        query = Query(pipe, tmp_path / "cp", startingOffsets='{"orders":{"0":1}}')
        named = json.dumps([query.id(), query.runId(), str(tmp_path / "cp")])

        def work(frame: Any, batch_id: int) -> None:
            frame.sparkSession = Session(query, {connect.QUERY: named} if connected else {})
            writer = frame.where(keep).write.format("eosdb").options(topic="more", **options)
            writer.mode("append").save(str(pipe))

        query.run(work)

    with pytest.raises(SparkOptionError, match="its query is not known here"):
        run()
    for _ in range(2):
        run(connected=True)
        forget_last_batch(tmp_path / "cp")
    assert numbers_in(pipe, "more") == list(range(1, 100))
    with pytest.raises(BatchDiffersError, match="these rows are not those"):
        run(connected=True, keep=large)
    run(txnAppId="job", txnVersion="9")
    forget_last_batch(tmp_path / "cp")
    with pytest.raises(BatchDiffersError, match="newest batch is 9"):  # As of a new checkpoint.
        run(txnAppId="job", txnVersion="0")


@pytest.mark.slow
def test_other_rows_under_the_same_run_of_a_job_are_an_error_unless_named(pipe: Path) -> None:
    def run(count: int, topic: str, tasks: int = 4, **options: str) -> None:
        rows: Any = frame(range(count), tasks)
        write(rows, pipe, topic=topic, txn_app_id="job", txn_version=7, **options)

    run(50, "good")
    run(50, "good", tasks=3)
    assert out(pipe, "good") == expected(50), "the same rows, in whatever order and parts"
    run(50, "bad")
    assert out(pipe, "bad") == expected(50), "another topic is another write"
    with pytest.raises(BatchDiffersError, match=r"batch 7.* writeName"):
        run(60, "good")
    assert out(pipe, "good") == expected(50)
    for _ in range(2):
        run(60, "good", writeName="the large ones")
    assert out(pipe, "good") == sorted([*expected(50), *expected(60)])


def test_rows_are_the_same_in_any_order_and_parts() -> None:
    table = pa.table({"key": [b"a", None, b"a", b""], "value": [b"1", b"1", None, b""]})
    whole = rows_of(table.to_batches())
    turned = table.take([3, 1, 0, 2])
    parts = [rows_of(turned.slice(start, 2).to_batches()) for start in (0, 2)]
    assert total(parts) == whole
    assert whole.size == 4
    for other in (table.slice(1), table.select(["value", "key"]), pa.concat_tables([table, table])):
        assert rows_of(other.to_batches()) != whole
    assert rows_of([]) == StagedRows()


def test_calls_are_numbered_by_their_rows_within_a_run() -> None:
    calls, nothing = Calls(), eosdb.AppendOnceResult(skipped=False, offsets={})

    def number(sink: str, run: str, rows: str, file_id: str = "file") -> int:
        this = MicroBatch("query", 0, run, is_in_order=True, calls=calls.of(sink, run))
        this = MicroBatch.of_text(this.to_text())
        _, call = this.bring(lambda _: nothing, file_id, rows, lambda _: False)
        calls.add(sink, run, call)
        return call.number

    assert [number("x", "run 1", rows) for rows in "aba"] == [0, 1, 0]
    assert number("y", "run 1", "b") == 0
    assert number("x", "run 1", "b", "another file") == 0
    assert [number("x", "run 2", rows) for rows in "ba"] == [0, 1], "a run begins anew"


def test_a_call_that_failed_leaves_its_number_to_the_next() -> None:
    calls = (Call("file", "a", 0),)

    def refused(number: int) -> eosdb.AppendOnceResult:
        raise eosdb.errors.StorageError(f"number {number}")

    this = MicroBatch("query", 0, "run", is_in_order=True, calls=calls)
    for rows in "bc":
        with pytest.raises(eosdb.errors.StorageError, match="number 1"):
            this.bring(refused, "file", rows, lambda _: False)


@pytest.mark.parametrize(
    ("stored", "run", "calls", "rows", "number"),
    [
        pytest.param("ab", "run 1", (), "b", 1, id="a replay in another order"),
        pytest.param("a", "run 1", (("file", "a", 0),), "b", 1, id="new, behind what was replayed"),
        pytest.param("a", "run 2", (), "b", 1, id="new, behind another of this run"),
        pytest.param("a", "run 1", (), "b", None, id="new or other rows"),
        pytest.param("", "run 1", (), "b", 0, id="the first"),
    ],
)
def test_in_threads_a_write_is_known_by_its_rows_or_refused(
    stored: str, run: str, calls: tuple[tuple[str, str, int], ...], rows: str, number: int | None
) -> None:
    def bring(number: int) -> eosdb.AppendOnceResult:
        if number < len(stored) and stored[number] != rows:
            raise eosdb.errors.BatchDiffersError("other", 7, frozenset({f"{run} 12ab"}))
        return eosdb.AppendOnceResult(skipped=number < len(stored), offsets={})

    made = tuple(Call(*call) for call in calls)
    this = MicroBatch("query", 7, "2", calls=made)
    if number is None:
        with pytest.raises(eosdb.errors.BatchDiffersError, match="batch 7 again"):
            this.bring(bring, "file", rows, lambda number: number < len(stored))
    else:
        _, call = this.bring(bring, "file", rows, lambda number: number < len(stored))
        assert call == ("file", rows, number)
