"""A table of each format, as the format's own library reads it: pyarrow, deltalake, pyiceberg.

These are imported when they are used: to collect the tests needs none of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.errors import EosdbError
from eosdb.integrations.lakehouse import Exported, export, export_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.catalog import Catalog

FORMATS: Final = ("parquet", "delta", "iceberg")
LIBRARIES: Final = (
    "eosdb.integrations.lakehouse.exporting", "eosdb.integrations.lakehouse.delta",
    "eosdb.integrations.lakehouse.iceberg", "pyiceberg.catalog.sql",
)  # fmt: skip
"""What programs that export would each import, in a second of CPU."""
COLUMNS: Final = [
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "source_file",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a folder of its own."""

    format: str
    folder: Path

    @property
    def target(self) -> str:
        return "lake.events" if self.format == "iceberg" else str(self.folder / "table")

    @property
    def options(self) -> dict[str, str]:
        if self.format != "iceberg":
            return {}
        uri = f"sqlite:///{self.folder}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder}/warehouse"}

    def export(
        self,
        db: eosdb.Database,
        topics: Collection[str] | None = None,
        *,
        allow_data_loss: bool = False,
    ) -> Exported:
        return export(
            db,
            self.target,
            self.format,
            topics=topics,
            options=self.options,
            allow_data_loss=allow_data_loss,
        )

    def export_files(
        self, paths: Sequence[Path], topics: Collection[str] | None = None
    ) -> dict[str, Exported | EosdbError]:
        """The result for each file, by its name."""
        done = export_files(
            [str(path) for path in paths],
            self.target,
            self.format,
            topics=topics,
            catalog="default",
            options=self.options,
            allow_data_loss=False,
            principal="User:ANONYMOUS",
        )
        return {Path(path).name: result for path, result in done}

    def delta(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.target)

    def catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.options)

    def commits(self) -> int:
        """How many commits have added records."""
        if self.format == "delta":
            return sum("eosdb" in it for it in self.delta().history())
        if self.format == "iceberg":
            return len({*self.folder.rglob("snap-*.avro")})
        return int((Path(self.target) / "_eosdb/progress.json").exists())

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of topic, partition and offset; none if there is no table yet."""
        if self.format == "delta":
            from deltalake import DeltaTable

            exists = DeltaTable.is_deltatable(self.target)
            found = self.delta().to_pyarrow_table() if exists else None
        elif self.format == "iceberg":
            catalog = self.catalog()
            exists = catalog.table_exists(self.target)
            found = catalog.load_table(self.target).scan().to_arrow() if exists else None
            catalog.close()
        else:
            import pyarrow.dataset as ds

            exists = Path(self.target).exists()
            found = ds.dataset(self.target, partitioning="hive").to_table() if exists else None
        if found is None or found.num_rows == 0:
            return []
        rows: list[dict[str, Any]] = found.select(COLUMNS).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def places(self) -> list[tuple[str, int, int]]:
        return [(row["topic"], row["partition"], row["offset"]) for row in self.rows()]

    def data_files(self) -> set[Path]:
        """All that lie there, also those that the table does not have."""
        return {path for path in self.folder.rglob("*.parquet*") if "_delta_log" not in path.parts}


def committed(db: eosdb.Database) -> list[tuple[str, int, int]]:
    """Where the records are that a consumer reads."""
    found = []
    for tp, (offsets, end) in sorted(db.admin.consistent_cut().items()):
        for rows in db.admin.scan(tp, offsets.log_start_offset, end, columns=("offset",)):
            found += [(*tp, offset) for (offset,) in rows]
    return found


def append(db: eosdb.Database, count: int, partition: int = 0, topic: str = "orders") -> None:
    db.broker.append(TopicPartition(topic, partition), RecordBatch([Record(b"k", b"v")] * count))
