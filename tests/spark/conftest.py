"""One Spark session for all tests that ask for it, with the JDBC driver where one is found.

What Python can call directly, as Spark's workers do, is in `tests/spark_io`; here Spark runs each seam.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark  # noqa: F401  Without it, all of the folder is skipped at once.
import pytest

from eosdb.spark_io import jdbc
from tests.spark import daemon, small
from tests.spark_io.conftest import pipe, shop, source, target
from tests.tidy.tree import ROOT

__all__ = ["pipe", "shop", "source", "target"]


NO_JAVA = "NO JAVA: Spark itself is not tested here; apt-get install default-jre-headless"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the room, and skip them without Java."""
    here = Path(__file__).parent
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("spark")
            if not has_java:
                item.add_marker(pytest.mark.skip(reason=NO_JAVA))


def builder(cores: str = "local[2,3]") -> Any:
    """A small session, with three attempts for each task."""
    os.environ.update(small.environment())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        made = SparkSession.builder.master(cores)
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.speculation": "true",
        "spark.python.daemon.module": daemon.__name__,
    }
    if jdbc.find() is not None:
        conf |= jdbc.spark_conf()
    for name, value in conf.items():
        made = made.config(name, value)
    return made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # Spark's workers have the environment in which the session began.
    os.environ["EOSDB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder().getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def with_jdbc() -> None:
    """For tests that need the driver."""
    if jdbc.find() is None:
        pytest.skip(f"NO SQLITE JDBC DRIVER: JDBC is not tested here; {jdbc.INSTALL}")


def values(frame: Any) -> list[bytes]:
    """The column value, sorted."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbers(spark: Any, count: int, tasks: int = 4) -> Any:
    return spark.range(0, count, 1, tasks).selectExpr(
        "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
