"""What a processor's committed offset says: which records beyond it are finished.

The metadata of such an offset begins with `eosdb:`. `eosdb:30 40 2 5` says: of the records below 40, only
30, 30 + 2 and 30 + 2 + 5 are unfinished. `eosdb:40` says: all below 40 are finished. This is true for any
committed offset from the first number on, so the metadata outlives a move of the offset (decisions/0093).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from eosdb.model.values import OffsetAndMetadata

SIZE_MAX: Final = 4_096
"""The most bytes of such metadata; a smaller offset.metadata.max.bytes does not bound it."""
GLOB: Final = "eosdb:[0-9]*"
"""The pattern of such metadata for SQLite's GLOB."""
_METADATA: Final = re.compile(r"eosdb:(\d{1,19})(?: (\d{1,19})((?: \d{1,19})*))?", re.ASCII)


class Finished(NamedTuple):
    """The records at and beyond a committed offset: those below `end` are finished, except `unfinished`."""

    end: int
    unfinished: Sequence[int] = ()


def text(end: int, unfinished: Sequence[int]) -> str:
    """The metadata; `unfinished` is in order."""
    if not unfinished:
        return f"eosdb:{end}"
    assert unfinished[-1] < end, (unfinished, end)
    assert all(before < after for before, after in pairwise(unfinished)), unfinished
    distances = "".join(f" {after - before}" for before, after in pairwise(unfinished))
    return f"eosdb:{unfinished[0]} {end}{distances}"


def is_processors(metadata: str) -> bool:
    return _METADATA.fullmatch(metadata) is not None


def read(committed: OffsetAndMetadata) -> Finished:
    """What is finished beyond a committed offset: nothing if no processor has committed it, or if it was
    moved back since."""
    offset, found = committed.offset, _METADATA.fullmatch(committed.metadata)
    if not found or offset < (first := int(found[1])):
        return Finished(offset)
    if found[2] is None:
        return Finished(max(first, offset))
    unfinished = accumulate(map(int, found[3].split()), initial=first)
    return Finished(max(int(found[2]), offset), [each for each in unfinished if each >= offset])


def told(committed: OffsetAndMetadata) -> OffsetAndMetadata:
    """What a client sees of a committed offset: no metadata of a processor's if nothing is finished beyond
    the offset, as a consumer's commit has none."""
    is_bare = is_processors(committed.metadata) and read(committed).end == committed.offset
    return committed._replace(metadata="") if is_bare else committed


def from_here(given: OffsetAndMetadata) -> OffsetAndMetadata:
    """A processor's offset beyond which nothing is finished."""
    return given._replace(metadata=text(max(given.offset, 0), ()))


def settled(standing: OffsetAndMetadata, given: OffsetAndMetadata) -> OffsetAndMetadata:
    """The offset to store when any program commits `given` after `standing`.

    An offset that is at or past the standing one keeps what is finished beyond it. An offset that is moved
    back forgets it: everything is read again. Metadata of the committer's own yields only to records that
    are finished beyond its offset.
    """
    if not is_processors(standing.metadata) or is_processors(given.metadata):
        return given
    if given.offset < standing.offset:
        return given if given.metadata else from_here(given)
    if given.metadata and read(standing._replace(offset=given.offset)).end == given.offset:
        return given
    return given._replace(metadata=standing.metadata)
