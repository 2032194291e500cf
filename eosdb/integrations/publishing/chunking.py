"""Decides which blocks of a new snapshot must be uploaded, and where readers find each block.

The blocks of a region may be in several chunks: the first has all of them, later ones the changed ones.
If a chunk is mostly outdated, its current blocks are uploaded again; likewise a region with too many
chunks. So the storage holds at most about twice the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eosdb.integrations.publishing.manifest import BLOCK, REGION, Chunk

_PIECES: Final = 8
"""The most chunks that one region may consist of."""


class Division(NamedTuple):
    """The chunks of earlier snapshots that a new snapshot uses, and the blocks of each chunk to upload."""

    kept: list[Chunk]
    fresh: list[tuple[int, ...]]


class Run(NamedTuple):
    """Consecutive blocks in an object: its name, the index of the first block there, and the blocks'
    numbers in the file."""

    name: str
    at: int
    blocks: list[int]


def divide(
    hashes: Sequence[bytes],
    before: Sequence[bytes],
    chunks: Sequence[Chunk],
    usable: Collection[str],
) -> Division:
    """Decide which chunks to reuse and which to upload. `before` and `chunks` are the hashes and chunks
    of an earlier snapshot; only chunks in `usable` may be reused."""
    place = places(chunks)
    by_region: dict[int, list[tuple[Chunk, list[int]]]] = {}
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
    return Division(kept, fresh)


def places(chunks: Iterable[Chunk]) -> dict[int, tuple[str, int]]:
    """Return for each block the name of its object, and its index there."""
    return {
        block: (chunk.name, index) for chunk in chunks for index, block in enumerate(chunk.blocks)
    }


def runs(wanted: Iterable[int], chunks: Iterable[Chunk]) -> Iterator[Run]:
    """Yield the fewest runs that contain the wanted blocks. Raises KeyError for a block that is in no
    chunk."""
    place = places(chunks)
    last: Run | None = None
    for (name, index), block in sorted((place[block], block) for block in wanted):
        if last is not None and last.name == name and last.at + len(last.blocks) == index:
            last.blocks.append(block)
            continue
        if last is not None:
            yield last
        last = Run(name, index, [block])
    if last is not None:
        yield last


def block_length(block: int, size: int) -> int:
    """The length of a block in a file of `size` bytes: only the last block may be shorter."""
    return min(BLOCK, size - block * BLOCK)
