"""The manifest of a published snapshot: a small JSON object that lists the chunks of its blocks, with facts
for planning without a download.

The file is divided into blocks; a chunk is an object with some blocks of one region, in order. Chunks of
earlier snapshots are reused; of two chunks with the same block, the later one counts.

If most blocks of a chunk are outdated, its current blocks are uploaded again in a new chunk; likewise if a
region has too many chunks. So the storage used is at most about twice the file.

decisions/0037: several publishers may publish the same file, so no object is reused that another publisher
might remove. A chunk that only older snapshots name, or none for long, is uploaded again under another
name. All times are the storage's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eosdb.errors import CorruptDatabaseError, UnsupportedVersionError
from eosdb.model.damage import parsed
from eosdb.model.values import PartitionOffsets, TopicPartition
from eosdb.store.schema import file_id

HURRY_S: Final = 1800.0
"""The maximum age in s of a publisher's listing of the storage when it writes its snapshot."""
SUPERSEDED_S: Final = 2 * HURRY_S
"""A snapshot stays at least this time (s) after the next one, even beyond the number to keep."""
UNNAMED_S: Final = 24 * 3600.0
"""An unnamed chunk stays for this time (s): a publisher may be about to name it."""


class Stored(NamedTuple):
    """An object's size in bytes, and the time when it was written (s); None if unknown."""

    size: int
    modified: float | None


def in_order(snapshots: Mapping[str, Stored]) -> list[str]:
    return sorted(snapshots, key=lambda name: (snapshots[name].modified or 0.0, name), reverse=True)


def usable(
    chunks: Mapping[str, Stored], newest: Manifest | None, all_named: Collection[str], now: float
) -> set[str]:
    """The chunks that no publisher may remove within `HURRY_S`: the chunks of the newest snapshot, and
    recently uploaded chunks that no snapshot names."""
    of_newest: Collection[str] = newest.objects if newest is not None else ()
    return {
        name
        for name, stored in chunks.items()
        if name in of_newest
        or (
            name not in all_named
            and stored.modified is not None
            and now - stored.modified < UNNAMED_S / 2
        )
    }


def removable_snapshots(
    snapshots: Mapping[str, Stored], latest: str, keep: int, now: float
) -> list[str]:
    """The snapshots to remove: superseded more than `SUPERSEDED_S` ago, not the latest, and not among the
    `keep` newest."""
    order = in_order(snapshots)
    found = []
    for next_newer, name in zip(order[keep - 1 :], order[keep:], strict=False):
        since = snapshots[next_newer].modified
        if name != latest and since is not None and now - since > SUPERSEDED_S:
            found.append(name)
    return found


def removable_chunks(
    chunks: Mapping[str, Stored], named: Collection[str], released: Collection[str], now: float
) -> list[str]:
    """The chunks to remove. `named` are the chunks of snapshots that stay, `released` the chunks of
    snapshots that are being removed."""
    return [
        name
        for name, stored in chunks.items()
        if name not in named
        and (
            name in released or (stored.modified is not None and now - stored.modified > UNNAMED_S)
        )
    ]


FORMAT: Final = 1
BLOCK: Final = 32 * 1024
"""The size of a block in bytes; a block is uploaded again if a page in it has changed."""
REGION: Final = 128
"""The number of blocks of a region (4 MiB), which is the most that one object contains."""
_HASH: Final = 16
"""The number of bytes that are stored of a block's SHA-256."""
_CHUNK_NAME: Final = re.compile(r"[0-9a-f]{64}(-[0-9a-f]{1,16})?")
_MARK: Final = re.compile(r"[\w-]{22}\.\d{1,20}\.([0-9a-f]{16}|None)", re.ASCII)
_SNAPSHOT_NAME: Final = re.compile(r"\d{20}-\d{13,20}")


class StoredChunk(NamedTuple):
    """An object, its size in bytes, and the numbers of the blocks in it. The first 64 characters of the
    name are the SHA-256 of its content."""

    name: str
    size: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot. `position` is the position of the last event, and `mark` identifies the history up to
    there (`history_mark`); `marks` are the marks of earlier snapshots of this history. `hashes` is the
    chunk with the blocks' hashes, and `partitions` the result of `admin.consistent_cut`."""

    file_id: str
    name: str
    position: int
    mark: str
    marks: tuple[str, ...]
    time_ms: int
    size: int
    hashes: str
    chunks: tuple[StoredChunk, ...]
    partitions: dict[TopicPartition, tuple[PartitionOffsets, int]]

    @property
    def objects(self) -> frozenset[str]:
        return frozenset((self.hashes, *(chunk.name for chunk in self.chunks)))


def snapshot_name(position: int, time_ms: int) -> str:
    return f"{position:020}-{time_ms:013}"


def is_snapshot_name(text: str) -> bool:
    return _SNAPSHOT_NAME.fullmatch(text) is not None


def is_chunk_name(text: str) -> bool:
    return _CHUNK_NAME.fullmatch(text) is not None


def is_file_id(text: str) -> bool:
    return file_id.FORM.fullmatch(text) is not None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def block_hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_HASH]


def split_hashes(data: bytes) -> list[bytes]:
    return [data[at : at + _HASH] for at in range(0, len(data), _HASH)]


def to_bytes(manifest: Manifest) -> bytes:
    body: dict[str, Any] = {
        field.name: getattr(manifest, field.name) for field in dataclasses.fields(manifest)
    }
    body["format"] = FORMAT
    body["chunks"] = [[c.name, c.size, _to_runs(c.blocks)] for c in manifest.chunks]
    body["partitions"] = [
        [*tp, *dataclasses.astuple(offsets), end]
        for tp, (offsets, end) in sorted(manifest.partitions.items())
    ]
    text = _canonical(body)
    return f'{{"sha256":"{digest(text.encode())}","snapshot":{text}}}'.encode()


def parse(data: bytes, where: str) -> Manifest:
    """Parse a manifest written by `to_bytes`. Raises CorruptDatabaseError if the data is no valid
    manifest (the message names the object `where`), and UnsupportedVersionError if a newer eosdb wrote
    it."""
    try:
        given = parsed(data)
        body = given["snapshot"]
        if digest(_canonical(body).encode()) != given["sha256"]:
            raise ValueError("its checksum does not match")
        if body.pop("format") != FORMAT:
            raise UnsupportedVersionError(
                f"{where} was published by a newer eosdb, in another format; read it with that version"
            )
        return _checked(body)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDatabaseError(
            f"{where} is damaged, or is no snapshot of eosdb ({error}); publish the file again"
        ) from None


def _checked(body: dict[str, Any]) -> Manifest:
    chunks = tuple(
        StoredChunk(name, size, tuple(_of_runs(runs))) for name, size, runs in body["chunks"]
    )
    partitions = {
        TopicPartition(topic, partition): (PartitionOffsets(*offsets), end)
        for topic, partition, *offsets, end in body["partitions"]
    }
    marks = tuple(body["marks"])
    found = Manifest(**{**body, "marks": marks, "chunks": chunks, "partitions": partitions})
    numbers = [found.position, found.time_ms, found.size]
    numbers += [number for chunk in chunks for number in (chunk.size, *chunk.blocks)]
    cut = [(*tp, *dataclasses.astuple(offsets), end) for tp, (offsets, end) in partitions.items()]
    # A name becomes a path, which must not lead out of the folder.
    if not (
        all(type(number) is int and number >= 0 for number in numbers)
        and all(chunk.blocks for chunk in chunks)
        and all(type(topic) is str and {int} == set(map(type, rest)) for topic, *rest in cut)
        and all(_MARK.fullmatch(mark) for mark in (found.mark, *marks))
        and is_file_id(found.file_id)
        and is_snapshot_name(found.name)
        and all(map(is_chunk_name, found.objects))
    ):
        raise ValueError("it has a name or number that eosdb never writes")
    return found


def _canonical(body: object) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _to_runs(blocks: tuple[int, ...]) -> list[list[int]]:
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs


def _of_runs(runs: list[list[int]]) -> Iterator[int]:
    for first, count in runs:
        if not 0 < count <= REGION:
            raise ValueError("a chunk has no blocks, or too many")
        yield from range(first, first + count)


_PIECES: Final = 8
"""The most chunks that one region may consist of."""


class StoredRun(NamedTuple):
    """Consecutive blocks in an object: its name, the index of the first block there, and the blocks'
    numbers in the file."""

    name: str
    at: int
    blocks: list[int]


def divide(
    hashes: Sequence[bytes],
    before: Sequence[bytes],
    chunks: Sequence[StoredChunk],
    usable: Collection[str],
) -> tuple[list[StoredChunk], list[tuple[int, ...]]]:
    """Decide which chunks to reuse, and which blocks to upload in each new chunk. `before` and `chunks` are
    the hashes and chunks of an earlier snapshot; only chunks in `usable` may be reused."""
    place = places(chunks)
    by_region: dict[int, list[tuple[StoredChunk, list[int]]]] = {}
    for chunk in chunks:
        used = [
            block
            for block in chunk.blocks
            if place[block][0] == chunk.name
            and block < min(len(hashes), len(before))
            and hashes[block] == before[block]
        ]
        if chunk.name in usable and 2 * len(used) >= len(chunk.blocks):
            by_region.setdefault(chunk.blocks[0] // REGION, []).append((chunk, used))
    kept, fresh = [], []
    for region in range(-(-len(hashes) // REGION)):
        blocks = range(region * REGION, min((region + 1) * REGION, len(hashes)))
        pieces = by_region.get(region, [])
        there = {block for _, used in pieces for block in used}
        missing = tuple(block for block in blocks if block not in there)
        if missing and len(pieces) >= _PIECES:
            pieces, missing = [], tuple(blocks)
        kept += [chunk for chunk, _ in pieces]
        if missing:
            fresh.append(missing)
    return kept, fresh


def places(chunks: Iterable[StoredChunk]) -> dict[int, tuple[str, int]]:
    """Return for each block the name of its object, and its index there."""
    return {
        block: (chunk.name, index) for chunk in chunks for index, block in enumerate(chunk.blocks)
    }


def runs(wanted: Iterable[int], chunks: Iterable[StoredChunk]) -> Iterator[StoredRun]:
    """Yield the fewest runs that contain the wanted blocks. Raises KeyError for a block that is in no
    chunk."""
    place = places(chunks)
    last: StoredRun | None = None
    for (name, index), block in sorted((place[block], block) for block in wanted):
        if last is not None and last.name == name and last.at + len(last.blocks) == index:
            last.blocks.append(block)
            continue
        if last is not None:
            yield last
        last = StoredRun(name, index, [block])
    if last is not None:
        yield last


def block_length(block: int, size: int) -> int:
    """The length of a block in a file of `size` bytes: only the last block may be shorter."""
    return min(BLOCK, size - block * BLOCK)
