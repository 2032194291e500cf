"""What counts as a repeat: each write of a micro-batch has a key of its own, and only what holds the same
is skipped. Spark repeats a micro-batch that is not in its commit log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eosdb
from eosdb.spark_io import foreach_batch, read_stream, write
from eosdb.spark_io.writing.micro_batch import Call, Calls, MicroBatch
from eosdb.spark_io.writing.writes import Rows, rows_of, total
from tests.spark.test_writing import expected, numbers, out

pytestmark = pytest.mark.spark

SMALL, LARGE = "CAST(CAST(value AS STRING) AS INT) < 40", "CAST(CAST(value AS STRING) AS INT) >= 40"
UPPER_HALF = "CAST(CAST(value AS STRING) AS INT) >= 20"


@pytest.fixture
def pipe(db_path: Path) -> Path:
    """A hundred numbers, and topics to write to."""
    with eosdb.connect(db_path, durability="off") as db:
        for topic in ("orders", "good", "bad", "more"):
            db.admin.create_topic(topic)
    append(db_path, range(100))
    return db_path


def append(path: Path, values: range) -> None:
    with eosdb.connect(path, durability="off") as db, db.producer() as producer:
        for i in values:
            producer.send("orders", b"%d" % i)


def numbers_in(path: Path, topic: str) -> list[int]:
    return sorted(int(value) for value in out(path, topic))


def each_batch(
    spark: Any, path: Path, checkpoint: Path, work: Callable[[Any, int], None], **options: object
) -> None:
    settings = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    query = (
        read_stream(spark, path, **settings)
        .selectExpr("value")
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_batch(checkpoint: Path) -> None:
    """As when the driver died behind the write and before Spark's own note."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink(missing_ok=True)


def test_every_write_of_a_micro_batch_is_stored_once_also_when_the_batch_is_repeated(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    good, bad = foreach_batch(pipe, topic="good"), foreach_batch(pipe, topic="bad")
    again = foreach_batch(pipe, topic="good")
    named = [foreach_batch(pipe, topic="more", writeName=name) for name in ("one", "two")]

    def work(frame: Any, batch_id: int) -> None:
        good(frame.where(SMALL), batch_id)
        bad(frame.where(LARGE), batch_id)
        again(frame.where(LARGE), batch_id)
        for sink in named:
            sink(frame, batch_id)

    for _ in range(2):
        each_batch(spark, pipe, tmp_path / "cp", work, maxOffsetsPerTrigger=60)
        assert numbers_in(pipe, "good") == list(range(100))
        assert numbers_in(pipe, "bad") == list(range(40, 100))
        assert numbers_in(pipe, "more") == sorted([*range(100)] * 2), "named, they are two writes"
        forget_last_batch(tmp_path / "cp")


def test_writes_of_spark_itself_within_a_micro_batch_are_stored_once_each(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    def work(frame: Any, batch_id: int) -> None:
        write(frame.where(SMALL), pipe, topic="good")
        write(frame.where(LARGE), pipe, topic="good")
        write(frame.where(LARGE), pipe, topic="bad")
        for topic in ("bad", "more"):
            write(frame, pipe, topic=topic, txn_app_id="job", txn_version=batch_id)

    for _ in range(2):
        each_batch(spark, pipe, tmp_path / "cp", work, maxOffsetsPerTrigger=60)
        assert numbers_in(pipe, "good") == list(range(100))
        assert numbers_in(pipe, "bad") == sorted([*range(100), *range(40, 100)])
        assert numbers_in(pipe, "more") == list(range(100))
        forget_last_batch(tmp_path / "cp")


def test_a_repeat_whose_rows_come_out_differently_is_known_by_what_spark_planned(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    sink = foreach_batch(pipe, topic="good")

    def work(frame: Any, batch_id: int) -> None:
        sink(frame.selectExpr("uuid() AS value"), batch_id)

    def stream() -> None:
        query = (
            read_stream(spark, pipe, subscribe="orders", startingOffsets="earliest")
            .selectExpr("uuid() AS value")
            .writeStream.format("eosdb")
            .option("topic", "more")
            .option("checkpointLocation", str(tmp_path / "cp-stream"))
            .trigger(availableNow=True)
            .start(str(pipe))
        )
        query.awaitTermination()

    for _ in range(2):
        each_batch(spark, pipe, tmp_path / "cp", work)
        stream()
        assert len(out(pipe, "good")) == len(out(pipe, "more")) == 100
        forget_last_batch(tmp_path / "cp")
        forget_last_batch(tmp_path / "cp-stream")


def to_more(
    spark: Any,
    path: Path,
    checkpoint: Path,
    sink_id: str,
    start: str,
    *,
    topic: str = "more",
    into: Path | None = None,
) -> None:
    query = (
        read_stream(spark, path, subscribe="orders", startingOffsets=start)
        .selectExpr("value")
        .writeStream.format("eosdb")
        .option("topic", topic)
        .option("sinkId", sink_id)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(into or path))
    )
    query.awaitTermination()


def test_a_new_checkpoint_under_an_old_sink_id_is_an_error_unless_it_brings_the_same(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    to_more(spark, pipe, tmp_path / "one", "fixed", "earliest")
    to_more(spark, pipe, tmp_path / "two", "fixed", "earliest")
    assert numbers_in(pipe, "more") == list(range(100)), "the same rows again"
    append(pipe, range(100, 150))
    new = '{"orders":{"0":100}}'
    for _ in range(2):
        with pytest.raises(Exception, match=r"newest batch is 0, .* new checkpoint .* sinkId"):
            to_more(spark, pipe, tmp_path / "three", "fixed", new)
    assert numbers_in(pipe, "more") == list(range(100))
    to_more(spark, pipe, tmp_path / "four", "another", new)
    assert numbers_in(pipe, "more") == list(range(150))


def test_foreach_batch_with_a_fixed_sink_id_knows_a_new_checkpoint_too(
    spark: Any, pipe: Path, tmp_path: Path
) -> None:
    sink = foreach_batch(pipe, topic="good", sink_id="fixed")
    each_batch(spark, pipe, tmp_path / "one", sink, maxOffsetsPerTrigger=30)
    append(pipe, range(100, 150))
    new = '{"orders":{"0":100}}'
    with pytest.raises(Exception, match=r"newest batch is 3, .* sink_id"):
        each_batch(spark, pipe, tmp_path / "two", sink, startingOffsets=new)
    assert numbers_in(pipe, "good") == list(range(100))
    each_batch(spark, pipe, tmp_path / "one", sink)
    assert numbers_in(pipe, "good") == list(range(150))


def test_other_rows_under_the_same_run_of_a_job_are_an_error_unless_named(
    spark: Any, pipe: Path
) -> None:
    def run(frame: Any, topic: str, **options: str) -> None:
        write(frame, pipe, topic=topic, txn_app_id="job", txn_version=7, **options)

    run(numbers(spark, 50), "good")
    run(numbers(spark, 50).orderBy("key").repartition(3), "good")
    assert out(pipe, "good") == expected(50), "the same rows, in whatever order and parts"
    run(numbers(spark, 50), "bad")
    assert out(pipe, "bad") == expected(50), "another topic is another write"
    with pytest.raises(Exception, match=r"batch 7.* writeName"):
        run(numbers(spark, 60), "good")
    assert out(pipe, "good") == expected(50)
    for _ in range(2):
        run(numbers(spark, 60), "good", writeName="the large ones")
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
    assert rows_of([]) == Rows()


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
