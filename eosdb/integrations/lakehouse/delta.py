"""A Delta table, partitioned by topic and day. The progress is stored as Delta's application transactions,
in the same commit as the data: one for the next offset of each partition, and one for each other number."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from eosdb.errors import ConfigError, StorageError
from eosdb.model.clock import Clock
from eosdb.model.records.arrow_types import schema

from .progress import Numbers
from .targets import COLUMNS, DataFile, SyncedFile, local_path, one_line, sync_file, sync_folders

_PARTITIONED_BY: Final = ["topic", "day"]
_SCHEMA: Final = schema(COLUMNS).append(pa.field("day", pa.date32()))
_APP: Final = "eosdb:"


class DeltaTarget:
    columns: Sequence[str] = tuple(name for name in COLUMNS if name != "topic")

    def __init__(self, uri: str, options: Mapping[str, str], clock: Clock) -> None:
        self._uri = uri
        self._clock = clock
        self._options = dict(options)
        self._local = local_path(uri)

    def load(self, names: Collection[str]) -> Numbers:
        with self._translated():
            try:
                self._table = DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                with contextlib.suppress(CommitFailedError):  # another export creates it
                    DeltaTable.create(
                        self._uri,
                        _SCHEMA,
                        mode="ignore",
                        partition_by=_PARTITIONED_BY,
                        storage_options=self._options,
                    )
                self._table = DeltaTable(self._uri, storage_options=self._options)
            wanted = [(field.name, field.type) for field in Schema.from_arrow(_SCHEMA).fields]
            found = [(field.name, field.type) for field in self._table.schema().fields]
            by = self._table.metadata().partition_columns
            if found != wanted or by != _PARTITIONED_BY:
                raise ConfigError(
                    f"{self._uri} is another table: its columns are {', '.join(n for n, _ in found)}, "
                    f"partitioned by {', '.join(by) or 'none'}; expected "
                    f"{', '.join(n for n, _ in wanted)}, partitioned by {', '.join(_PARTITIONED_BY)}"
                )
            remembered = {name: self._table.transaction_version(_APP + name) for name in names}
        return {name: number for name, number in remembered.items() if number is not None}

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        path = f"topic={topic}/day={day}/{name}"
        if self._local is not None:
            return path, SyncedFile(os.path.join(self._local, path))
        return path, self._remote().open_output_stream(path)

    def commit(
        self,
        files: Sequence[DataFile],
        before: Numbers,
        after: Numbers,
        about: Mapping[str, object],
    ) -> bool:
        if self._local is not None:
            sync_folders(self._local, [os.path.join(self._local, it.path) for it in files])
        # decisions/0038: Delta refuses a commit if another one since `load` has one of its transactions.
        properties = CommitProperties(
            custom_metadata={"eosdb": dict(about)},
            app_transactions=[Transaction(_APP + name, number) for name, number in after.items()],
        )
        with self._translated():
            try:
                self._table.create_write_transaction(
                    [_action(it, self._clock.time_ms()) for it in files],
                    "append",
                    _SCHEMA,
                    _PARTITIONED_BY,
                    commit_properties=properties,
                )
            except CommitFailedError:
                self._table = DeltaTable(self._uri, storage_options=self._options)
                if self._remembers(before, after):
                    raise  # for something else than another export
                return False
            if self._local is not None:
                before_it = self._table.version()
                self._table.update_incremental()
                for version in range(before_it + 1, self._table.version() + 1):
                    sync_file(os.path.join(self._local, "_delta_log", f"{version:020}.json"))
        return True

    def remove(self, path: str) -> None:
        if self._local is not None:
            os.unlink(os.path.join(self._local, path))
        else:
            self._remote().delete_file(path)

    def close(self) -> None:
        pass

    def _remembers(self, before: Numbers, names: Collection[str]) -> bool:
        return all(
            self._table.transaction_version(_APP + name) == before.get(name) for name in names
        )

    def _remote(self) -> pa.fs.FileSystem:
        return pa.fs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(f"{self._uri}: Delta says: {one_line(error)}") from error


def _action(file: DataFile, now_ms: int) -> AddAction:
    stats = {"numRecords": file.rows, "minValues": file.least, "maxValues": file.most}
    partition = {"topic": file.topic, "day": file.day}
    return AddAction(file.path, file.size_bytes, partition, now_ms, True, json.dumps(stats))
