"""Option `groupId`: a query's progress as offsets of a consumer group, for lag monitors.

The query itself resumes from Spark's checkpoint, so a failed commit does not stop it: it is logged once and
retried later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import EosdbError, UnknownMemberIdError
from eosdb.model.clock import Clock, SystemClock
from eosdb.model.notices import catalog
from eosdb.spark_io.planning.offsets import Place

_LATER_MS: Final = 60_000
_PATIENCE: Final = eosdb.BrokerConfig(lock_timeout_ms=1_000)
"""A query must not wait long for another writer."""

Offsets = dict[TopicPartition, int]


class GroupProgress:
    """Commits a query's offsets for one group, in the files whose offsets have moved."""

    def __init__(self, group_id: str, clock: Clock | None = None) -> None:
        self._group_id = group_id
        self._clock = clock or SystemClock()
        self._told: dict[str, Offsets] = {}
        self._not_before: dict[str, int] = {}
        self._warned_of: set[type[Exception]] = set()

    def tell(self, places: Mapping[Place, int]) -> None:
        """Commit these offsets, below which everything was written. Never raises."""
        now_ms = self._clock.monotonic_ms()
        refused: dict[type[Exception], list[tuple[str, Exception]]] = {}
        for path, offsets in _by_file(places).items():
            if self._told.get(path) == offsets or now_ms < self._not_before.get(path, now_ms):
                continue
            try:
                self._commit(path, offsets)
            except Exception as error:  # No failure here may stop the query.
                self._not_before[path] = now_ms + _LATER_MS
                refused.setdefault(type(error), []).append((path, error))
            else:
                self._told[path] = offsets
        for kind, cases in refused.items():
            if kind not in self._warned_of:
                self._warned_of.add(kind)
                self._warn(*cases[0], len(cases) - 1)

    def _commit(self, path: str, offsets: Offsets) -> None:
        with eosdb.connect(path, create=False, migrate=False, config=_PATIENCE) as db:
            existing = db.admin.partition_offsets()
            db.broker.offset_commit(
                self._group_id,
                {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items() if tp in existing},
            )

    def _warn(self, path: str, error: Exception, more: int) -> None:
        why = str(error)
        if isinstance(error, UnknownMemberIdError):
            why = (
                f"the group has members ({self._members(path)}), and its offsets are theirs; choose a "
                "groupId that no consumer uses"
            )
        catalog.OFFSETS_NOT_NOTED.say(
            file=path,
            group_id=self._group_id,
            files=f"{path} and {more} more files" if more else path,
            cause=why,
        )

    def _members(self, path: str) -> str:
        with contextlib.suppress(EosdbError), eosdb.connect(path, read_only=True) as db:
            members = db.broker.describe_group(self._group_id).members
            return ", ".join(f"{m.member_id} of client {m.client_id}" for m in members)
        return "unknown"


def _by_file(places: Mapping[Place, int]) -> dict[str, Offsets]:
    by_file: dict[str, Offsets] = {}
    for (path, tp), offset in places.items():
        by_file.setdefault(path, {})[tp] = offset
    return by_file
