"""Lakehouses: `export` appends the new records of a file to Parquet, Delta or Iceberg tables, exactly once.

Needs the extra `lakehouse` from the first use of `export` on, and no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from eosdb.model.words import needs_extra

if TYPE_CHECKING:
    from .exporting import Exported, export
    from .exporting import export_files as export_files

__all__ = ["Exported", "export"]


def __getattr__(name: str) -> object:
    if name not in (*__all__, "export_files"):
        raise AttributeError(f"eosdb.integrations.lakehouse has no {name}")
    try:
        return getattr(import_module("eosdb.integrations.lakehouse.exporting"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyarrow":
            raise ImportError(needs_extra(f"lakehouse.{name}", "lakehouse", error)) from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
