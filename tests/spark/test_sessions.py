"""Sessions as users have them: not registered, with and without filter pushdown, with SQL and a catalog."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceRegistration
from pyspark.sql.streaming.datasource import ReadAllAvailable

import eosdb
import pyspark_eosdb
from eosdb import spark_io
from eosdb.spark_io import foreach_batch, jar, python, read, read_stream, write
from eosdb.spark_io.planning.errors import SparkOptionError
from tests.spark.conftest import values
from tests.spark.test_another_file import Reader, make
from tests.spark.test_repeats import append
from tests.spark.test_writing import numbers, out

pytestmark = pytest.mark.spark


def test_the_format_is_registered_once_because_spark_warns_of_each_other_time(
    spark: Any, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = spark.newSession()
    spark_io.register(fresh)
    registered: list[object] = []
    monkeypatch.setattr(
        DataSourceRegistration, "register", lambda self, source: registered.append(source)
    )
    assert values(read(fresh, shop)) == values(read(fresh, shop))
    assert registered == []


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_new_session_finds_the_format_by_itself_with_and_without_pushdown(
    spark: Any, shop: Path, pushdown: str
) -> None:
    fresh = spark.newSession()
    fresh.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    frame = fresh.read.format("eosdb").option("subscribe", "orders").load(str(shop))
    each = [values(read(spark, shop, assign=f'{{"orders":[{p}]}}')) for p in (0, 1)]
    assert all(each)
    # Spark keeps what a reader says to the first filter: the others must not be answered by that.
    assert values(frame.where("partition = 1")) == each[1]
    assert values(frame.where("partition = 0")) == each[0]
    assert values(frame) == sorted([*each[0], *each[1]])
    assert values(frame.where("partition = 0").union(frame.where("partition = 1"))) == values(frame)
    assert values(read(fresh, shop)) == values(frame)


def test_sql_reads_a_temporary_view_and_is_told_of_it_instead_of_a_table(
    spark: Any, shop: Path
) -> None:
    fresh = spark.newSession()
    options = f"USING eosdb OPTIONS (path '{shop}', subscribe 'orders')"
    fresh.sql(f"CREATE TEMPORARY VIEW orders {options}")
    assert values(fresh.sql("SELECT * FROM orders")) == values(
        read(spark, shop, subscribe="orders")
    )
    with pytest.raises(Exception, match=r"catalog cannot be one of eosdb's.*CREATE TEMPORARY VIEW"):
        fresh.sql(f"CREATE TABLE no_table {options}")
    fresh.sql(f"CREATE TABLE with_schema (value BINARY) {options}")
    try:
        for use in ("SELECT * FROM with_schema", "INSERT INTO with_schema VALUES (X'00')"):
            with pytest.raises(Exception, match="gives the source none of the table's options"):
                fresh.sql(use).collect()
    finally:
        fresh.sql("DROP TABLE with_schema")


def test_extra_columns_are_left_out_and_a_published_copy_is_no_target(
    spark: Any, shop: Path, tmp_path: Path
) -> None:
    with eosdb.connect(shop) as db:
        db.admin.create_topic("out")
        db.publish_copy(tmp_path / "copy.db")
    write(numbers(spark, 9).selectExpr("*", "1 AS price"), shop, topic="out")
    assert len(out(shop)) == 9
    content = (tmp_path / "copy.db").read_bytes()
    with pytest.raises(Exception, match=r"published copy.*write to the file that it was made from"):
        write(numbers(spark, 9), tmp_path / "copy.db", topic="out")
    assert (tmp_path / "copy.db").read_bytes() == content
    assert not (tmp_path / "copy.db-staging").exists()


def test_aggregates_are_appended_in_complete_mode_and_by_foreach_batch_in_update_mode(
    spark: Any, shop: Path, tmp_path: Path
) -> None:
    with eosdb.connect(shop) as db:
        db.admin.create_topic("complete")
        db.admin.create_topic("update")
    counts = (
        read_stream(spark, shop, subscribe="orders", startingOffsets="earliest")
        .groupBy("partition")
        .count()
        .selectExpr("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
    )
    for mode, target in (
        ("complete", counts.writeStream.format("eosdb").option("topic", "complete")),
        ("update", counts.writeStream.foreachBatch(foreach_batch(shop, topic="update"))),
    ):
        started = (
            target.outputMode(mode)
            .option("checkpointLocation", str(tmp_path / mode))
            .option("path", str(shop))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        expected = read(spark, shop, subscribe="orders").groupBy("partition").count().collect()
        assert out(shop, mode) == sorted(b"%d" % row["count"] for row in expected)


def test_a_stream_waits_for_as_many_offsets_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    make(path, range(3))
    reader = Reader(path, minOffsetsPerTrigger=5).stream_reader()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first != reader.initialOffset(), "the first micro-batch does not wait"
    append(path, range(3, 7))
    assert reader.latestOffset(first, limit) == first
    everything = reader.latestOffset(first, ReadAllAvailable())
    assert everything != first
    append(path, range(7, 8))
    more = reader.latestOffset(first, limit)
    assert more not in (first, everything)
    append(path, range(8, 9))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(more, limit) != more, "what there is now is read, however little"


def test_a_spark_that_is_too_old_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.1.1")
    with pytest.raises(
        ImportError, match=r"^eosdb.spark_io needs PySpark 4.2 or newer, found 4.1.1"
    ):
        importlib.reload(spark_io)
    # What Spark finds by itself is still there, and says so when it is used.
    monkeypatch.delitem(sys.modules, "eosdb.spark_io")
    monkeypatch.delitem(sys.modules, "eosdb.spark_io.source")
    found = importlib.reload(pyspark_eosdb).DefaultSource
    with pytest.raises(ImportError, match=r"needs PySpark 4\.2"):
        found({})
    monkeypatch.undo()
    assert importlib.reload(pyspark_eosdb).DefaultSource.name() == found.name() == "eosdb"


def test_workers_run_this_python_unless_somebody_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = SimpleNamespace(master="local[2]", pythonExec="python3")
    remote = SimpleNamespace(master="spark://x:7077", pythonExec="python3")
    for context in (local, remote):
        session: Any = SimpleNamespace(sparkContext=context)
        with monkeypatch.context() as patch:
            patch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
            python.use_this_python(session)
            assert context.pythonExec == "python3"
            patch.delenv("PYSPARK_PYTHON")
            python.use_this_python(session)
    assert (local.pythonExec, remote.pythonExec) == (sys.executable, "python3")
    with monkeypatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
        jar.spark_conf()
        assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"
        patch.delenv("PYSPARK_PYTHON")
        jar.spark_conf()
        assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("module", ["eosdb", "pyarrow.compute"])
def test_workers_without_eosdb_are_named(module: str) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/usr/bin/python3"))
    connect: Any = SimpleNamespace()
    for made, which in ((session, "/usr/bin/python3"), (connect, "a Python of the server's")):
        said = pytest.raises(SparkOptionError, match=f"run {which}, which has no {module}")
        with said, python.explained(made):
            raise RuntimeError(f"ModuleNotFoundError: No module named '{module}'")
    with pytest.raises(RuntimeError, match="numpy"), python.explained(session):
        raise RuntimeError("ModuleNotFoundError: No module named 'numpy'")
