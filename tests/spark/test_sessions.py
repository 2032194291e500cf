"""Sessions as users have them: not registered, with and without filter pushdown, with SQL and a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceRegistration

from eosdb import spark_io
from eosdb.spark_io import read
from tests.spark.conftest import values


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


def test_a_new_session_finds_the_format_by_itself_and_a_filter_is_not_taken_for_the_next(
    spark: Any, shop: Path
) -> None:
    fresh = spark.newSession()
    fresh.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = fresh.read.format("eosdb").option("subscribe", "orders").load(str(shop))
    each = [values(read(spark, shop, assign=f'{{"orders":[{p}]}}')) for p in (0, 1)]
    assert all(each)
    # Spark keeps what a reader says to the first filter: the others must not be answered by that.
    assert values(frame.where("partition = 1")) == each[1]
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    assert values(frame) == values(both) == sorted([*each[0], *each[1]])


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
