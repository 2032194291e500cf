"""Where Spark finds the data source by itself: it looks through every top-level module named `pyspark_…`.

Everything else is in `eosdb.spark_io` (decisions/0039). Nothing may be raised while this is imported: Spark
would find no other Python data source either.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class Unusable(DataSource):
    """Says on use why eosdb cannot be used here."""

    why = ""

    def __init__(self, options: dict[str, str]) -> None:
        raise ImportError(self.why)

    @classmethod
    def name(cls) -> str:
        return "eosdb"


DefaultSource: Any = Unusable
try:
    from eosdb.spark_io.source import EosdbDataSource

    DefaultSource = EosdbDataSource
except ImportError as error:
    Unusable.why = str(error)
