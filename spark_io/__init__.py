"""eosdb files in Spark: the data source `eosdb`, exactly-once sinks, and JDBC.

Installed as `eosdb.spark_io`; needs `pip install 'eosdb[spark]'`. Names are imported on demand, so that the
command line can show its help without Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import foreach_batch, read, read_stream, register, skipped_files, snapshot, write
    from .errors import SparkOptionError
    from .jar import spark_conf
    from .jdbc import JdbcOptions, jdbc_options, read_jdbc

_HOMES = {
    "foreach_batch": "api", "read": "api", "read_stream": "api", "register": "api", "snapshot": "api",
    "skipped_files": "api", "write": "api", "SparkOptionError": "errors", "spark_conf": "jar",
    "JdbcOptions": "jdbc", "jdbc_options": "jdbc", "read_jdbc": "jdbc",
}  # fmt: skip

__all__ = [
    "JdbcOptions", "SparkOptionError", "foreach_batch", "jdbc_options", "read", "read_jdbc", "read_stream",
    "register", "skipped_files", "snapshot", "spark_conf", "write",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"eosdb.spark_io has no {name}")
    try:
        return getattr(import_module(f"eosdb.spark_io.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow"):
            raise ImportError(
                f"eosdb.spark_io.{name} needs pyspark and pyarrow: pip install 'eosdb[spark]' ({error})"
            ) from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
