"""Which Python runs Spark's workers, and what is said when that one lacks eosdb.

Spark takes it from the variable PYSPARK_PYTHON when a session's context is made, and else from the path; no
setting of the session names it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .planning.errors import SparkOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE: Final = "PYSPARK_PYTHON"
_MISSING: Final = re.compile(r"No module named '((?:eosdb|pyarrow|sqlalchemy|alembic)\b[.\w]*)'")


def name_this_python() -> None:
    """For the sessions that this process makes from now on, unless somebody has chosen one already."""
    os.environ.setdefault(VARIABLE, sys.executable)


def use_this_python(spark: SparkSession) -> None:
    """For a session that was made without: in local mode its workers run on this machine."""
    if VARIABLE in os.environ:
        return
    # Spark Connect has no context, and says so in several ways.
    with contextlib.suppress(Exception):
        context = spark.sparkContext
        if str(context.master).startswith("local"):
            context.pythonExec = sys.executable


@contextlib.contextmanager
def explained(spark: SparkSession) -> Iterator[None]:
    """Raises SparkOptionError when Spark's workers cannot import eosdb, or what it needs."""
    try:
        yield
    except Exception as error:  # One class in a classic session, and others over Spark Connect.
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
