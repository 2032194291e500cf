"""A Delta table, partitioned by topic and day.

Delta's application transactions store the progress in the commit of the data: one for the next offset of
each partition, and one for each other number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from eosdb.errors import ConfigError, StorageError
from eosdb.integrations.lakehouse import targets
from eosdb.model.clock import Clock
from eosdb.model.damage import parsed
from eosdb.model.records.arrow_types import schema

_PARTITIONED_BY: Final = ["topic", "day"]
_SCHEMA: Final = schema(targets.COLUMNS).append(pa.field("day", pa.date32()))
_APP: Final = "eosdb:"
_LOG: Final = "_delta_log"
_CHECKPOINT: Final = re.compile(
    r"(?P<version>\d{20})\.checkpoint\.(?:\d{10}\.(?P<parts>\d{10})\.|[-0-9a-f]{36}\.)?(?:parquet|json)"
)


class DeltaTarget:
    columns: Sequence[str] = tuple(name for name in targets.COLUMNS if name != "topic")

    def __init__(self, uri: str, options: Mapping[str, str], clock: Clock) -> None:
        self._uri = uri
        self._clock = clock
        self._options = dict(options)
        self._local = targets.local_path(uri)

    def load(self) -> targets.Numbers:
        with self._translated():
            try:
                self._table = DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                with contextlib.suppress(CommitFailedError):  # Another export may create it.
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
            return self._transactions()

    def create(self, topic: str, day: str, name: str) -> tuple[str, BinaryIO]:
        path = f"topic={topic}/day={day}/{name}"
        if self._local is not None:
            return path, targets.SyncedFile(os.path.join(self._local, path))
        return path, self._remote().open_output_stream(path)

    def commit(self, new: targets.Commit) -> bool:
        if self._local is not None:
            paths = [os.path.join(self._local, it.path) for it in new.files]
            targets.sync_folders(self._local, paths)
        # decisions/0038: these ids make Delta refuse the commit if another export committed since `load`.
        properties = CommitProperties(
            custom_metadata={"eosdb": dict(new.about)},
            app_transactions=[
                Transaction(_APP + name, number) for name, number in targets.flat(new.after).items()
            ],
        )
        with self._translated():
            try:
                self._table.create_write_transaction(
                    [_action(it, self._clock.time_ms()) for it in new.files],
                    "append",
                    _SCHEMA,
                    _PARTITIONED_BY,
                    commit_properties=properties,
                )
            except CommitFailedError:
                if new.is_current(self.load()):
                    raise  # No other export has committed, so the failure is real.
                return False
            before_it = self._table.version()
            self._table.update_incremental()
            if self._local is not None:
                for version in range(before_it + 1, self._table.version() + 1):
                    targets.sync_file(os.path.join(self._local, _LOG, f"{version:020}.json"))
        return True

    def remove(self, path: str) -> None:
        if self._local is not None:
            os.unlink(os.path.join(self._local, path))
        else:
            self._remote().delete_file(path)

    def close(self) -> None:
        pass

    def _transactions(self) -> targets.Numbers:
        """Read our application transactions from the table's log: its newest checkpoint and the later
        commits. deltalake returns only one at a time, and reads the whole log each time."""
        files, version = self._remote(), self._table.version()
        checkpoints: dict[int, list[re.Match[str]]] = {}
        for info in files.get_file_info(pa.fs.FileSelector(_LOG)):
            found = _CHECKPOINT.fullmatch(info.base_name)
            if found is not None and int(found["version"]) <= version:
                checkpoints.setdefault(int(found["version"]), []).append(found)
        newest, names = -1, []
        for at, found_at in sorted(checkpoints.items()):
            one = next((it[0] for it in found_at if it["parts"] is None), None)
            if one is not None or len(found_at) == int(found_at[0]["parts"]):
                newest, names = at, [one] if one else [it[0] for it in found_at]
        names += [f"{at:020}.json" for at in range(newest + 1, version + 1)]
        return {
            txn["appId"].removeprefix(_APP): txn["version"]
            for name in names
            for txn in _transactions_in(files, f"{_LOG}/{name}")
            if txn["appId"].startswith(_APP)
        }

    def _remote(self) -> pa.fs.FileSystem:
        return pa.fs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(f"{self._uri}: Delta says: {targets.one_line(error)}") from error


def _transactions_in(files: pa.fs.FileSystem, path: str) -> Iterable[Mapping[str, Any]]:
    if path.endswith(".parquet"):
        column = pq.read_table(path, filesystem=files, columns=["txn"]).column("txn")
        found: list[dict[str, Any]] = column.filter(column.is_valid()).to_pylist()
        return found
    with files.open_input_stream(path) as log:
        lines = log.read().splitlines()
    actions = (parsed(line) for line in lines if b'"txn"' in line)
    return [action["txn"] for action in actions if "txn" in action]


def _action(file: targets.DataFile, now_ms: int) -> AddAction:
    stats = {"numRecords": file.rows, "minValues": file.least, "maxValues": file.most}
    partition = {"topic": file.topic, "day": file.day}
    return AddAction(file.path, file.size_bytes, partition, now_ms, True, json.dumps(stats))
