"""eosdb files in Spark: the data source `eosdb`, exactly-once sinks, and JDBC.

Installed as `eosdb.spark_io`; needs `pip install 'eosdb[spark]'`.
"""

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"eosdb.spark_io needs pyspark and pyarrow: pip install 'eosdb[spark]' ({error})"
    ) from error

from .api import foreach_batch, read, read_stream, register, snapshot, write
from .errors import SparkOptionError
from .jar import spark_conf
from .jdbc import JdbcOptions, jdbc_options, read_jdbc

__all__ = [
    "JdbcOptions", "SparkOptionError", "foreach_batch", "jdbc_options", "read", "read_jdbc", "read_stream",
    "register", "snapshot", "spark_conf", "write",
]  # fmt: skip
