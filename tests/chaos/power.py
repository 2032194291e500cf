"""Power cuts, computed: what may be on the disk, from what a program did to its files until then.

The model is a disk that lies as much as it may. What has been synced is there. Of what was written
since, any sectors are there and others are not, in any order, torn in the middle of a write. A sync
that failed has made the pages clean: of what it was to bring to the disk some sectors are there,
and the rest never will be, unless it is written again. A name that was removed or changed may still
be what it was.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from eosdb.store.file.file_system import LOCKS

_HEAD: Final = struct.Struct("<cQIQQ")
_SECTOR: Final = 512
_SOURCE: Final = Path(__file__).with_name("disk.c")


class Operation(NamedTuple):
    """A row of the log that disk.c keeps."""

    kind: str
    token: int
    path: str
    offset: int
    data: bytes


@lru_cache(maxsize=1)
def library(folder: str) -> Path:
    """disk.c, compiled."""
    built = Path(folder) / "disk.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl"], check=True
    )
    return built


def preloaded(library: Path, folder: Path) -> dict[str, str]:
    """Variables of a program whose files in `folder` can fail."""
    return {"LD_PRELOAD": str(library), "EOSDB_DISK_FOLDER": f"{folder}/"}


def environment(library: Path, folder: Path, log: Path, **more: object) -> dict[str, str]:
    """For a program whose files in `folder` are watched; `more` are variables of disk.c."""
    return {
        **os.environ,
        **preloaded(library, folder),
        "EOSDB_DISK_LOG": str(log),
        **{f"EOSDB_DISK_{name.upper()}": str(value) for name, value in more.items()},
    }


def read_log(path: Path) -> list[Operation]:
    return list(_operations(path.read_bytes()))


def _operations(data: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(data):
        kind, token, path_length, offset, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        path = data[at : at + path_length].decode()
        at += path_length
        kept = length if kind in b"WRL" else 0
        yield Operation(kind.decode(), token, path, offset, data[at : at + kept])
        at += kept


@dataclass(slots=True)
class _File:
    """What is on the disk for certain, and what was written since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)
    exists: bool = False
    """Whether its name has become durable, with its first sync."""

    def apply(self, operation: Operation) -> None:
        if operation.kind == "T":
            del self.durable[operation.offset :]
            self.durable.extend(bytes(operation.offset - len(self.durable)))
            return
        end = operation.offset + len(operation.data)
        self.durable.extend(bytes(max(0, end - len(self.durable))))
        self.durable[operation.offset : end] = operation.data

    def apply_some(self, operations: list[Operation], rng: random.Random) -> None:
        """Any of the sectors, in any order; sometimes all, sometimes a beginning."""
        parts = [part for operation in operations for part in _sectors(operation)]
        match rng.randrange(4):
            case 0:
                parts = parts[: rng.randrange(len(parts) + 1)]
            case 1:
                parts = [part for part in parts if rng.random() < 0.9]
            case 2:
                parts = [part for part in parts if rng.random() < 0.5]
                rng.shuffle(parts)
            case _:
                pass
        for part in parts:
            self.apply(part)


def _sectors(operation: Operation) -> Iterator[Operation]:
    if operation.kind == "T":
        yield operation
        return
    at, data = operation.offset, operation.data
    while data:
        length = _SECTOR - at % _SECTOR
        yield operation._replace(offset=at, data=data[:length])
        at, data = at + length, data[length:]


class Disk:
    """The files of one folder, as operations reach them."""

    def __init__(self, rng: random.Random, ignored: tuple[str, ...] = ("-shm", *LOCKS)) -> None:
        self._rng = rng
        self._ignored = ignored
        self._files: dict[str, _File] = {}
        self._removed: dict[str, _File] = {}
        """Files whose removal need not have reached the disk. A new file of such a name is another one."""
        self._syncing: dict[int, tuple[str, list[Operation]]] = {}

    def take(self, operation: Operation) -> None:
        name = os.path.basename(operation.path)
        if name.endswith(self._ignored):
            return
        file = self._files.setdefault(name, _File())
        match operation.kind:
            case "W" | "T":
                file.pending.append(operation)
            case "S":
                self._syncing[operation.token] = (name, list(file.pending))
            case "E" | "F":
                self._end_sync(operation, file)
            case "U":
                self._removed.pop(name, None)
                removed = self._files.pop(name)
                if self._rng.random() < 0.2:
                    self._removed[name] = removed
            case "R" | "L":
                self._files[os.path.basename(operation.data.decode())] = file
                if operation.kind == "R":
                    del self._files[name]

    def _end_sync(self, operation: Operation, file: _File) -> None:
        _, covered = self._syncing.pop(operation.token, ("", []))
        ids = {id(found) for found in covered}
        mine = [found for found in file.pending if id(found) in ids]
        file.pending = [found for found in file.pending if id(found) not in ids]
        if operation.kind == "E":
            file.exists = True
            for found in mine:
                file.apply(found)
        else:
            file.apply_some(mine, self._rng)

    def cut(self, folder: Path) -> None:
        """Lose power: write to `folder` what is found afterwards."""
        for name, file in {**self._removed, **self._files}.items():
            file.apply_some(file.pending, self._rng)
            if file.exists or (file.durable and self._rng.random() < 0.5):
                (folder / name).write_bytes(file.durable)
            elif name in self._removed:
                (folder / name).write_bytes(self._removed[name].durable)
