"""Publishing: uploads a frozen copy of the file as chunks, then the snapshot that names the chunks, then
the pointer to the latest snapshot.

An interrupted attempt leaves chunks without a snapshot; the next attempt reuses them (decisions/0037).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from eosdb.admin.summary import FileSummary
from eosdb.errors import CorruptDatabaseError, StorageError, in_doubt
from eosdb.integrations.publishing import manifest
from eosdb.integrations.publishing.manifest import BLOCK
from eosdb.integrations.publishing.storage import Storage, each, finished_name
from eosdb.maintenance import copies
from eosdb.model.clock import Clock
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress
from eosdb.model.reports import PublishReport
from eosdb.store import journal
from eosdb.store.store import Store

LATEST: Final = "latest.json"
CHUNKS: Final = "chunks"
SNAPSHOTS: Final = "snapshots"
_TIME: Final = "publishing"
_SUFFIX: Final = ".json"
_MARKS: Final = 20
"""The number of earlier snapshots whose marks are kept. With a mark, a reader checks without a download
that its offsets belong to this history."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The frozen copy: its descriptor, its size, and the hash of every block."""

    descriptor: int
    size: int
    hashes: list[bytes]

    def read(self, blocks: Collection[int]) -> bytes:
        return b"".join(os.pread(self.descriptor, BLOCK, block * BLOCK) for block in blocks)


@dataclass(frozen=True, slots=True)
class Survey:
    """The published chunks and snapshots, and the storage's time."""

    now: float
    chunks: dict[str, manifest.Stored]
    snapshots: list[manifest.Manifest]

    @property
    def newest(self) -> manifest.Manifest | None:
        return self.snapshots[0] if self.snapshots else None

    @property
    def usable(self) -> set[str]:
        named = {name for found in self.snapshots for name in found.objects}
        return manifest.usable(self.chunks, self.newest, named, self.now)


class Sent(NamedTuple):
    """A chunk that is in the storage now, and the number of bytes uploaded for it."""

    chunk: manifest.StoredChunk
    size: int


def publish(
    store: Store, clock: Clock, storage: Storage, keep: int, anew: bool, folder: str | None,
    report: Progress,
) -> PublishReport:  # fmt: skip
    """Publish the current state of the file below `storage`; `report` counts bytes of the copy."""
    # The upload reads a copy, because a read transaction during a slow upload would keep the WAL large.
    descriptor, facts = copies.freeze(store, folder)
    try:
        size = os.fstat(descriptor).st_size
        hashes = [
            manifest.block_hash(os.pread(descriptor, BLOCK, at)) for at in range(0, size, BLOCK)
        ]
        publisher = _Publisher(store, clock, storage.inside(facts.file_id), facts, anew, report)
        try:
            return publisher.publish(Copy(descriptor, size, hashes), keep)
        except StorageError as error:
            if publisher.may_be_published:
                in_doubt(error)
            raise
    finally:
        os.close(descriptor)


class _Publisher:
    def __init__(
        self, store: Store, clock: Clock, storage: Storage, facts: FileSummary, anew: bool,
        report: Progress,
    ) -> None:  # fmt: skip
        self._store: Final = store
        self._clock: Final = clock
        self._storage: Final = storage
        self._facts: Final = facts
        self._anew: Final = anew
        self._report: Final = report
        self.may_be_published = False
        """Whether the snapshot may be stored with all its chunks."""
        self._known: dict[str, manifest.Manifest | None] = {}
        self._sent: list[Sent] = []

    def publish(self, copy: Copy, keep: int) -> PublishReport:
        hashes = b"".join(copy.hashes)
        while True:
            began_ms = self._clock.monotonic_ms()
            survey = self._survey()
            if self._is_published(survey, manifest.digest(hashes), copy.size):
                assert survey.newest is not None
                published = survey.newest
            else:
                published = self._send(copy, hashes, survey)
                reach(Failpoint.CHUNKS_SENT)
                if self._is_late(began_ms):
                    continue  # Other publishers may have removed chunks of this snapshot.
                self.may_be_published = True
                self._storage.write(_path(published), manifest.to_bytes(published))
                reach(Failpoint.SNAPSHOT_SENT)
            if not self._is_late(began_ms):
                break
        latest = self._name_latest(published)
        removed = self._clean_up(survey, latest, keep)
        self._report(copy.size, copy.size)
        return PublishReport(
            self._storage.url,
            published.name,
            published.position,
            published.size,
            sum(sent.size > 0 for sent in self._sent),
            sum(sent.size for sent in self._sent),
            removed,
        )

    def _is_late(self, began_ms: int) -> bool:
        return self._clock.monotonic_ms() - began_ms > manifest.HURRY_S * 1000

    # -- listing the storage --------------------------------------------------------------------

    def _survey(self) -> Survey:
        now = self._storage.now(_TIME)
        chunks = {
            name: stored
            for name, stored in self._storage.listing(CHUNKS).items()
            if manifest.is_chunk_name(finished_name(name))
        }
        snapshots = self._snapshots()
        readable: list[manifest.Manifest | None] = []
        each(self._read, manifest.in_order(snapshots), readable.append)
        return Survey(now, chunks, [found for found in readable if found is not None])

    def _snapshots(self) -> dict[str, manifest.Stored]:
        return {
            name.removesuffix(_SUFFIX): stored
            for name, stored in self._storage.listing(SNAPSHOTS).items()
            if manifest.is_snapshot_name(name.removesuffix(_SUFFIX))
        }

    def _read(self, name: str) -> manifest.Manifest | None:
        """Read a snapshot; None if it was removed or is damaged."""
        if name not in self._known:
            where = f"{SNAPSHOTS}/{name}{_SUFFIX}"
            data = self._storage.read(where)
            try:
                snapshot = manifest.parse(data, where) if data is not None else None
            except CorruptDatabaseError:
                snapshot = None
            self._known[name] = snapshot
        return self._known[name]

    def _is_published(self, survey: Survey, hashes: str, size: int) -> bool:
        newest = survey.newest
        if self._anew or newest is None or newest.hashes[:64] != hashes or newest.size != size:
            return False
        return len(_whole(newest, survey)) == len(newest.chunks) and newest.hashes in survey.chunks

    # -- sending --------------------------------------------------------------------------------

    def _send(self, copy: Copy, hashes: bytes, survey: Survey) -> manifest.Manifest:
        """Upload all chunks, and return the manifest, which the caller must write."""
        usable = survey.usable
        newest = survey.newest if not self._anew else None
        before = self._storage.read(f"{CHUNKS}/{newest.hashes}") if newest is not None else None
        if newest is None or before is None or manifest.digest(before) != newest.hashes[:64]:
            kept, fresh = manifest.divide(copy.hashes, (), (), ())
        else:
            whole = _whole(newest, survey)
            kept, fresh = manifest.divide(
                copy.hashes, manifest.split_hashes(before), newest.chunks, whole
            )
        left = sum(manifest.block_length(block, copy.size) for blocks in fresh for block in blocks)
        done = copy.size - left
        self._report(done, copy.size)
        uploaded: list[manifest.StoredChunk] = []

        def note(sent: Sent) -> None:
            nonlocal done
            done += sent.chunk.size
            uploaded.append(sent.chunk)
            self._sent.append(sent)
            self._report(min(done, copy.size), copy.size)

        def send(blocks: tuple[int, ...]) -> Sent:
            return self._send_chunk(copy.read(blocks), blocks, survey, usable)

        each(send, fresh, note)
        index = self._send_chunk(hashes, (), survey, usable)
        self._sent.append(index)
        facts = self._facts
        time_ms = self._clock.time_ms()
        name = manifest.snapshot_name(facts.position, time_ms)
        return manifest.Manifest(
            facts.file_id, name, facts.position, facts.mark, self._marks(survey.snapshots), time_ms,
            copy.size, index.chunk.name,
            (*kept, *uploaded), facts.cut,
        )  # fmt: skip

    def _send_chunk(
        self, data: bytes, blocks: tuple[int, ...], survey: Survey, usable: set[str]
    ) -> Sent:
        name = manifest.digest(data)
        there = survey.chunks.get(name)
        if there is not None and name not in usable:
            # Another publisher may be removing this chunk, so store it under a new name.
            name, there = f"{name}-{secrets.token_hex(8)}", None
        chunk = manifest.StoredChunk(name, len(data), blocks)
        if there is not None and there.size == len(data) and not self._anew:
            return Sent(chunk, 0)
        self._storage.write(f"{CHUNKS}/{name}", data)
        reach(Failpoint.CHUNK_SENT)
        return Sent(chunk, len(data))

    # -- pointing to the latest, removing old snapshots -----------------------------------------

    def _name_latest(self, published: manifest.Manifest) -> manifest.Manifest:
        """Point to the latest snapshot. Several publishers may write the pointer at the same time, so each
        looks afterwards for a newer snapshot of this history, and points to that one."""
        latest = published
        self._storage.write(LATEST, manifest.to_bytes(latest))
        for name in self._snapshots():
            snapshot = self._read(name)
            if snapshot is not None and snapshot.position > latest.position:
                latest = snapshot if self._are_ours({snapshot.mark}) else latest
        if latest is not published:
            self._storage.write(LATEST, manifest.to_bytes(latest))
        return latest

    def _marks(self, snapshots: list[manifest.Manifest]) -> tuple[str, ...]:
        marks = {mark for snapshot in snapshots for mark in (snapshot.mark, *snapshot.marks)}
        at = {mark: journal.parse_mark(mark).position for mark in marks}
        ours = self._are_ours({mark for mark in marks if at[mark] <= self._facts.position})
        return tuple(sorted(ours, key=lambda mark: at[mark])[-_MARKS:])

    def _are_ours(self, marks: set[str]) -> set[str]:
        """The given marks that belong to the file's history. A restored older copy has another history."""
        with self._store.read() as connection:
            return {mark for mark in marks if journal.departure(connection, mark) is None}

    def _clean_up(self, survey: Survey, latest: manifest.Manifest, keep: int) -> int:
        snapshots = self._snapshots()
        now = max((s.modified for s in snapshots.values() if s.modified), default=survey.now)
        now = max(now, survey.now)
        gone = manifest.removable_snapshots(snapshots, latest.name, keep, now)
        stay = [self._read(name) for name in snapshots if name not in gone]
        named = {name for found in stay if found is not None for name in found.objects}
        released = {name for n in gone if (found := self._read(n)) for name in found.objects}
        chunks = manifest.removable_chunks(survey.chunks, named, released, now)
        self._storage.remove([f"{SNAPSHOTS}/{name}{_SUFFIX}" for name in gone])
        reach(Failpoint.SNAPSHOTS_REMOVED)
        self._storage.remove([f"{CHUNKS}/{name}" for name in chunks])
        return len(gone) + len(chunks)


def _path(snapshot: manifest.Manifest) -> str:
    return f"{SNAPSHOTS}/{snapshot.name}{_SUFFIX}"


def _whole(newest: manifest.Manifest, survey: Survey) -> set[str]:
    """The chunks of the snapshot that are stored in full length."""
    return {
        chunk.name
        for chunk in newest.chunks
        if chunk.name in survey.chunks and survey.chunks[chunk.name].size == chunk.size
    }
