"""Selects the Python of Spark's workers, and explains errors if eosdb is not installed there.

When a session's context is created, Spark reads the variable PYSPARK_PYTHON; if it is not set, Spark takes
`python3` from the path. No session setting selects the Python.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eosdb.spark_io.planning.errors import SparkOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE: Final = "PYSPARK_PYTHON"
_MISSING: Final = re.compile(r"No module named '((?:eosdb|pyarrow|sqlalchemy|alembic)\b[.\w]*)'")


def name_this_python() -> None:
    """Set PYSPARK_PYTHON to this Python for sessions created later, unless it is already set."""
    os.environ.setdefault(VARIABLE, sys.executable)


def use_this_python(spark: SparkSession) -> None:
    """Make the workers of a local session, which was created without PYSPARK_PYTHON, use this Python."""
    if VARIABLE in os.environ:
        return
    # Spark Connect has no context, and may raise errors of several classes.
    with contextlib.suppress(Exception):
        context = spark.sparkContext
        if str(context.master).startswith("local"):
            context.pythonExec = sys.executable


@contextlib.contextmanager
def explained(spark: SparkSession) -> Iterator[None]:
    """Context manager; raises SparkOptionError if Spark's workers cannot import eosdb or its
    dependencies."""
    try:
        yield
    except Exception as error:  # The class differs under Spark Connect.
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise SparkOptionError(
            f"Spark's Python workers run {_python_of(spark)}, which has no {missing[1]}. Install "
            f"eosdb[spark] there, or set {VARIABLE} before the session is made; "
            "eosdb.spark_io.spark_conf() sets it to the Python of your program, unless it is set"
        ) from error


def _python_of(spark: SparkSession) -> str:
    try:
        return str(spark.sparkContext.pythonExec)
    except Exception:
        return "a Python of the server's"
