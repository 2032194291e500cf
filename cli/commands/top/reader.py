"""Polls a file for `eosdb top`. It holds no snapshot between two readings, and survives errors and the
replacement of the file."""

from __future__ import annotations

import os
from typing import Final

import eosdb
from eosdb.cli.output import cell
from eosdb.cli.session import Session
from eosdb.errors import EosdbError
from eosdb.model.closing import Closeable
from eosdb.model.overview import Overview, between
from eosdb.model.values import TopicPartition

from .tables import Reading

_STEADY_MS: Final = 500
"""The least time over which a rate is computed; shorter ones would fluctuate."""
_COUNTED_MAX: Final = 10_000
"""If more offsets than this wait for a transaction, markers are counted as records."""
_LARGE_WAL: Final = 1 << 20


class Reader(Closeable):
    """`read` takes a reading; `note` is the last error, or says that the file was replaced."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._db: eosdb.Database | None = None
        self._inode: tuple[int, int] | None = None
        self._base: Overview | None = None
        self._last: Overview | None = None
        self.note = ""

    def first(self) -> Reading:
        """Take the first reading. Raises the errors of `connect`."""
        return self._read()

    def read(self) -> Reading | None:
        """Take a reading. Returns None if the file cannot be read: `note` has the reason, the next call
        retries."""
        try:
            self.note = ""
            return self._read()
        except (EosdbError, OSError) as error:
            self.note = _text_of(error)
            try:
                self.close()
            except (EosdbError, OSError) as second:
                self.note = _text_of(second)
            return None

    def close(self) -> None:
        opened, self._db = self._db, None
        if opened is not None:
            opened.close()

    def _read(self) -> Reading:
        if self._db is not None and _inode(self._db.path) != self._inode:
            self.close()
            self.note = "the file has been replaced: this is the new one"
        if self._db is None:
            self._db = self._session.open(read_only=True)
            self._inode = _inode(self._db.path)
        overview = self._db.admin.overview()
        if self._last is None or overview.now_ms - self._last.now_ms >= _STEADY_MS:
            self._base, self._last = self._last, overview
        base = self._base
        held_by = self._db.info()["wal_held_by"] if overview.wal_bytes >= _LARGE_WAL else ""
        return Reading(
            overview=overview,
            rates=None if base is None else between(base, overview),
            waiting=_waiting(self._db, overview),
            wal_held_by=str(held_by),
        )


def _inode(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _text_of(error: EosdbError | OSError) -> str:
    if isinstance(error, OSError):
        return cell(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return cell(f"{type(error).__name__}: {error}")


def _waiting(db: eosdb.Database, overview: Overview) -> dict[TopicPartition, int]:
    """Count the records that wait in each partition whose LSO a transaction holds."""
    offsets = {partition.topic_partition: partition.offsets for partition in overview.partitions}
    waiting = {}
    for holder in overview.holders():
        tp = holder.topic_partition
        behind = offsets[tp].log_end_offset - offsets[tp].last_stable_offset
        if behind <= _COUNTED_MAX // max(len(overview.transactions), 1):
            behind = db.admin.diagnose(tp).waiting_committed
        waiting[tp] = behind
    return waiting
