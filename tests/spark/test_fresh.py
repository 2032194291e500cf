"""What is read as of its run, and what as of its first plan: Spark keeps the plan of a DataFrame and of a
view over a data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eosdb.spark_io import jdbc_options, read, register
from tests.spark_io.making import append, make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "it's.db"
    make(path, range(100))
    return path


def test_a_data_frame_and_a_view_keep_their_first_plan_and_the_table_function_has_none(
    spark: Any, source: Path
) -> None:
    session = spark.newSession()
    register(session)
    text = str(source).replace("'", "\\'")
    session.sql(
        f"CREATE TEMPORARY VIEW kept USING eosdb OPTIONS (path '{text}', subscribe 'orders')"
    )
    session.sql(f"CREATE TEMPORARY VIEW fresh AS SELECT * FROM eosdb('{text}', 'orders')")
    kept = [read(session, source, subscribe="orders"), session.table("kept")]
    fresh = [
        session.sql(f"SELECT * FROM eosdb('{text}')"),
        session.sql(f"SELECT * FROM eosdb(subscribe => 'orders', path => '{text}')"),
        session.table("fresh"),
    ]
    assert [frame.count() for frame in (*kept, *fresh)] == [100] * 5
    assert fresh[0].schema == kept[0].schema
    assert fresh[0].orderBy("offset").head(3) == kept[0].orderBy("offset").head(3)
    append(source, range(100, 150))
    session.catalog.refreshTable("kept")
    assert [frame.count() for frame in kept] == [100, 100], "whatever is refreshed"
    assert [frame.count() for frame in fresh] == [150] * 3
    assert read(session, source, subscribe="orders").count() == 150
    with pytest.raises(Exception, match="there is no nothing in any of the files"):
        session.sql(f"SELECT * FROM eosdb('{text}', 'nothing')").count()


@pytest.mark.usefixtures("with_jdbc")
def test_a_view_by_jdbc_without_predicates_is_read_as_of_its_run(spark: Any, source: Path) -> None:
    given = jdbc_options(source)
    frame = spark.read.jdbc(given.url, given.table, properties=given.options)
    assert frame.count() == 100
    append(source, range(100, 150))
    assert frame.count() == 150
