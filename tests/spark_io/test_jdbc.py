"""Views through JDBC: types, one consistent cut, and ranges that reach SQLite's index."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch
from eosdb.spark_io import SparkOptionError, jdbc_options, spark_conf
from eosdb.spark_io import jdbc as jar_of
from tests.spark_io.making import fill, remove

BIG = 5_000_000_000


def test_tasks_are_ranges_of_offsets_that_reach_the_index(shop: Path) -> None:
    options = jdbc_options(shop, topics=["orders"], rows_per_task=10)
    assert len(options.predicates) >= 5
    with eosdb.connect(shop, read_only=True) as db:
        total = 0
        for predicate in options.predicates:
            sql = f"FROM committed_records WHERE {predicate}"
            plan = " ".join(str(row) for row in db.query(f"EXPLAIN QUERY PLAN SELECT * {sql}").rows)
            if " OR " not in predicate:
                assert "offset>? AND offset<?" in plan, plan
            ((count,),) = db.query(f"SELECT count(*) {sql}").rows
            total += count
        ((expected,),) = db.query("SELECT count(*) FROM committed_records").rows
    assert total == expected


def test_any_number_of_partitions_and_any_view_can_be_read(db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("wide", partitions=1_100)
        db.admin.create_view("order", "wide", {"name": "TEXT"})
        with db.producer() as producer:
            for partition in range(1_100):
                producer.send("wide", b"{}", partition=partition)
        for view in ("committed_records", "order"):
            options = jdbc_options(db_path, view)
            sql = f"SELECT count(*) FROM {options.table} WHERE "
            assert sum(n for one in options.predicates for (n,) in db.query(sql + one)) == 1_100


def test_what_cannot_be_read_says_so(shop: Path) -> None:
    for arguments, text in (
        ({"view": "no_such"}, "no table or view 'no_such'"),
        ({"topics": ["nowhere"]}, "no topic nowhere"),
        ({"view": "transactions", "topics": ["orders"]}, "has no topics"),
    ):
        with pytest.raises(SparkOptionError, match=text):
            jdbc_options(shop, **arguments)
    with pytest.raises(eosdb.DatabaseNotFoundError):
        jdbc_options(shop.parent / "nothing.db")


def test_odd_paths_are_quoted(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%.db"
    fill(path, 10)
    assert jdbc_options(path).url.endswith(
        "/a%20b%3Fc%23d%25.db?mode=ro&busy_timeout=30000&case_sensitive_like=true"
    )


# -- the driver ---------------------------------------------------------------------------------


def test_the_jar_that_is_named_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = tmp_path / "mine.jar", tmp_path / "theirs.jar"
    mine.touch()
    theirs.touch()
    monkeypatch.setenv(jar_of.ENVIRONMENT, str(theirs))
    assert spark_conf(str(mine)) == {"spark.jars": str(mine)}
    assert spark_conf() == {"spark.jars": str(theirs)}


def test_a_jar_that_is_not_there_is_an_error_with_the_line_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkOptionError, match="apt-get install libxerial"):
        spark_conf(str(tmp_path / "none.jar"))
    monkeypatch.setenv(jar_of.ENVIRONMENT, str(tmp_path / "none.jar"))
    with pytest.raises(SparkOptionError, match=jar_of.ENVIRONMENT):
        spark_conf()


def test_without_any_jar_spark_is_to_fetch_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jar_of.ENVIRONMENT, raising=False)
    monkeypatch.setattr(jar_of, "_DEBIAN_JAR", "/nothing/here.jar")
    (name,) = spark_conf()
    assert name == "spark.jars.packages"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 60], ids=["shorter", "as long"])
@pytest.mark.parametrize("view", ["committed_records", "typed"])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "topic"])
def test_predicates_are_of_one_file_and_topic(
    shop: Path, view: str, count: int, *, is_file: bool
) -> None:
    def make(count: int) -> None:
        with eosdb.connect(shop, durability="off") as db:
            db.admin.create_topic("again")
            db.admin.create_view("typed", "again", {"n": "INTEGER"})
            batch = RecordBatch([Record(value=b"{}")] * count)
            db.broker.append(eosdb.TopicPartition("again", 0), batch)

    def read() -> list[int]:
        with eosdb.connect(shop, read_only=True) as db:
            sql = f"SELECT count(*) FROM {view} WHERE "
            return [n for one in options.predicates for (n,) in db.query(sql + one)]

    make(60)
    options = jdbc_options(shop, view, None if view == "typed" else ["again"])
    assert sum(read()) == 60
    if is_file:
        remove(shop)
    else:
        with eosdb.connect(shop) as db:
            db.admin.drop_view("typed")
            db.admin.delete_topic("again")
    make(count)
    with pytest.raises(eosdb.EosdbError, match=r"topic again was .* make the DataFrame again"):
        read()
