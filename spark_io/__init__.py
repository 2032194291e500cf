"""eosdb files in Spark: the data source `eosdb`, exactly-once sinks, and JDBC.

Installed as `eosdb.spark_io`; needs the extra `spark`. Names are imported on demand, so that the command
line can show its help without loading Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from eosdb.model.words import needs_extra

if TYPE_CHECKING:
    from eosdb.spark_io.writing.micro_batch import WriteReport

    from .api import foreach_batch, read, read_stream, register, skipped_files, snapshot, write
    from .jdbc import JdbcOptions, jdbc_options, read_jdbc, spark_conf
    from .planning.errors import SparkOptionError
    from .planning.offsets import OffsetsBehindLatest, offsets_behind_latest

_OLDEST = (4, 2)
"""The oldest supported version of Spark, the first one with read limits for Python streams."""


def _check_spark() -> None:
    """Raises ImportError if Spark is too old. Without Spark, the first use of a name raises it."""
    try:
        from pyspark.version import __version__ as version
    except ModuleNotFoundError:
        return
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise ImportError(
            f"eosdb.spark_io needs PySpark 4.2 or newer, found {version}: pip install 'pyspark>=4.2'"
        )


_check_spark()
_HOMES = {
    "foreach_batch": "api", "read": "api", "read_stream": "api", "register": "api", "snapshot": "api",
    "skipped_files": "api", "write": "api", "SparkOptionError": "planning.errors", "spark_conf": "jdbc",
    "JdbcOptions": "jdbc", "jdbc_options": "jdbc", "read_jdbc": "jdbc",
    "OffsetsBehindLatest": "planning.offsets", "offsets_behind_latest": "planning.offsets",
    "WriteReport": "writing.micro_batch",
}  # fmt: skip

__all__ = [
    "JdbcOptions", "OffsetsBehindLatest", "SparkOptionError", "WriteReport", "foreach_batch",
    "jdbc_options", "offsets_behind_latest", "read", "read_jdbc", "read_stream", "register",
    "skipped_files", "snapshot", "spark_conf", "write",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"eosdb.spark_io has no {name}")
    try:
        return getattr(import_module(f"eosdb.spark_io.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow"):
            raise ImportError(needs_extra(f"eosdb.spark_io.{name}", "spark", error)) from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
