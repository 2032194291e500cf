"""An Iceberg table, partitioned by topic and day(timestamp).

The table's properties and the summary of the snapshot store the progress, in the commit of the data.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final, cast

from pyiceberg import types
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import DayTransform, IdentityTransform

from eosdb.errors import ConfigError, EosdbError, StorageError
from eosdb.integrations.lakehouse import targets
from eosdb.model.damage import parsed

_HEADER: Final = types.StructType(
    types.NestedField(11, "key", types.StringType()),
    types.NestedField(12, "value", types.BinaryType()),
)
_TYPES: Final = (
    types.BinaryType(),
    types.BinaryType(),
    types.StringType(),
    types.IntegerType(),
    types.LongType(),
    types.TimestamptzType(),
    types.IntegerType(),
    types.ListType(10, _HEADER, element_required=False),
    types.StringType(),
)
_SCHEMA: Final = Schema(
    *(
        types.NestedField(at, name, type_)
        for at, (name, type_) in enumerate(zip(targets.COLUMNS, _TYPES, strict=True), 1)
    )
)
_PARTITIONED_BY: Final = PartitionSpec(
    PartitionField(targets.COLUMNS.index("topic") + 1, 1000, IdentityTransform(), "topic"),
    PartitionField(targets.COLUMNS.index("timestamp") + 1, 1001, DayTransform(), "timestamp_day"),
)
_NUMBERS: Final = "eosdb.numbers"
"""The key in a snapshot's summary for pairs of a file's id and its numbers."""
_ATTEMPTS: Final = 20


class IcebergTarget:
    columns: Sequence[str] = targets.COLUMNS

    def __init__(self, identifier: str, catalog: str, options: Mapping[str, str]) -> None:
        self._identifier = identifier
        if "." not in identifier:
            raise ConfigError(f"got {identifier!r}, expected a table such as namespace.table")
        self._load_catalog = partial(load_catalog, catalog, **options)
        self._catalog: Catalog | None = None

    def load(self) -> targets.Numbers:
        with self._translated():
            self._load()
        found, by = _columns(self._table.schema()), _partitioning(self._table.spec())
        if found != _columns(_SCHEMA) or by != _partitioning(_PARTITIONED_BY):
            raise ConfigError(
                f"{self._identifier} is another table: its columns are {', '.join(n for n, _ in found)}, "
                f"partitioned by {', '.join(n for n, _ in by) or 'none'}; expected "
                f"{', '.join(targets.COLUMNS)}, partitioned by "
                f"{', '.join(n for n, _ in _partitioning(_PARTITIONED_BY))}"
            )
        return targets.flat(self._remembered())

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        provider = self._table.location_provider()
        path = provider.new_data_location(f"topic={topic}/timestamp_day={day}/{name}")
        if (local := targets.local_path(path)) is not None:
            return path, targets.SyncedFile(local)
        return path, cast(BinaryIO, self._table.io.new_output(path).create())

    def commit(self, new: targets.Commit) -> bool:
        root = targets.local_path(self._table.location())
        if root is not None:
            paths = [found for it in new.files if (found := targets.local_path(it.path))]
            targets.sync_folders(root, paths)
        for _ in range(_ATTEMPTS):
            with self._translated():
                try:
                    self._append(new)
                    break
                except CommitFailedException:
                    self._load()
            if not new.is_current(targets.flat(self._remembered())):
                return False
        else:
            raise StorageError(
                f"{self._identifier}: others committed first {_ATTEMPTS} times; nothing was exported, "
                "repeat the export"
            )
        if root is not None:
            self._sync_metadata()
        return True

    def remove(self, path: str) -> None:
        self._table.io.delete(path)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _append(self, new: targets.Commit) -> None:
        # decisions/0038: pyiceberg must not retry a commit that lost to another export, whose progress must
        # be read first. The property changes only in this process.
        properties = {**self._table.metadata.properties, "commit.retry.num-retries": "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})
        # The newest commit must have the numbers of all partitions, also of those outside of this export.
        remembered = self._remembered()
        all_of = {id_: {**remembered.get(id_, {}), **numbers} for id_, numbers in new.after.items()}
        pairs = json.dumps([*all_of.items()])
        summary = {_NUMBERS: pairs, "eosdb.export": json.dumps(new.about)}
        with self._table.transaction() as transaction:
            transaction.add_files(
                [it.path for it in new.files], summary, check_duplicate_files=False
            )
            transaction.set_properties(
                {f"{_NUMBERS}.{id_}": json.dumps(numbers) for id_, numbers in all_of.items()}
            )

    def _load(self) -> None:
        if self._catalog is None:
            self._catalog = self._load_catalog()
        try:
            self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            namespace = self._identifier.rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
            with contextlib.suppress(TableAlreadyExistsError):  # Another export may create it.
                self._catalog.create_table(
                    self._identifier, _SCHEMA, partition_spec=_PARTITIONED_BY
                )
            self._table = self._catalog.load_table(self._identifier)

    def _remembered(self) -> targets.NumbersByFile:
        """Read the progress of all files from the summaries of the snapshots, the newest first. After a
        rollback of the table its properties would be wrong."""
        found: dict[str, targets.Numbers] = {}
        oldest = None
        for oldest in ancestors_of(self._table.current_snapshot(), self._table.metadata):
            if oldest.summary is not None and (pairs := oldest.summary.get(_NUMBERS)):
                for id_, numbers in parsed(str(pairs)):
                    found.setdefault(id_, numbers)
        # If the first snapshot has expired, the summaries are incomplete; the properties have the rest.
        if oldest is not None and oldest.sequence_number != 1:
            for name, numbers in self._table.properties.items():
                if name.startswith(f"{_NUMBERS}."):
                    found.setdefault(name.removeprefix(f"{_NUMBERS}."), parsed(numbers))
        return found

    def _sync_metadata(self) -> None:
        snapshot = self._table.current_snapshot()
        assert snapshot is not None
        manifests = [it.manifest_path for it in snapshot.manifests(self._table.io)]
        for path in (*manifests, snapshot.manifest_list, self._table.metadata_location):
            if (local := targets.local_path(path)) is not None and os.path.exists(local):
                targets.sync_file(local)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedException, EosdbError):
            raise
        except Exception as error:  # The catalogs share no error class.
            raise StorageError(
                f"{self._identifier}: Iceberg says: {targets.one_line(error)}"
            ) from error


def _columns(schema: Schema) -> list[tuple[str, str]]:
    return [(it.name, re.sub(r"\d+: ", "", str(it.field_type))) for it in schema.fields]


def _partitioning(spec: PartitionSpec) -> list[tuple[str, str]]:
    return [(it.name, str(it.transform)) for it in spec.fields]
