"""Whether the cluster has the records of a partition, and where a group stands there: by counting.

Records are relayed one to one and in order, so as many of them stand between an offset and the end here as
there. Where a side has deleted its oldest records, the counts from the end still agree. A record is its
fingerprint here; one that stands at the place found must be the same, and so must all that are compared.

Values in, values out: the records of a side go through once.
"""

# decisions/0046: no positions that somebody noted, only what both sides have.
from __future__ import annotations

import hashlib
import itertools
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from eosdb.errors import IllegalStateError
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model.values import TopicPartition

_PRIME: Final = 2**61 - 1
_BASE: Final = 0x5DEECE66D1CE4E5 % _PRIME
_EARLIEST_MS: Final = 1
"""What the relay makes of earlier times, which the Kafka client takes for "now"."""


class Print(NamedTuple):
    """A record by its fingerprint; `key` is that of its key, and `is_tombstone`: it has no value."""

    offset: int
    content: int
    key: int
    is_tombstone: bool


def print_of(record: RelayRecord, *, timed: bool) -> Print:
    """`timed`: the time belongs to the content."""
    time = max(record.timestamp or 0, _EARLIEST_MS) if timed else 0
    parts = [struct.pack(">q", time), _part(record.key), _part(record.value)]
    for name, value in record.headers or ():
        parts += [_part(name.encode()), _part(value)]
    return Print(
        record.offset,
        _hash(b"".join(parts)),
        hash(record.key),
        record.value is None,
    )


def _part(value: bytes | None) -> bytes:
    return b"-" if value is None else struct.pack(">cq", b"+", len(value)) + value


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


# -- a partition whose records stay until the oldest are deleted --------------------------------------


class Mark(NamedTuple):
    """A committed offset: how many records follow it, and the first of them."""

    left: int
    first: int | None


@dataclass(frozen=True, slots=True)
class SurveyHere:
    """The file's side of a partition."""

    count: int
    digest: int
    first: int | None
    marks: Mapping[int, Mark]
    """By committed offset."""

    @property
    def wanted(self) -> frozenset[int]:
        """The records of which `survey_there` remembers the places."""
        return frozenset(mark.first for mark in self.marks.values() if mark.first is not None)


@dataclass(frozen=True, slots=True)
class SurveyThere:
    """The cluster's side of it."""

    count: int
    digest: int
    before: Mapping[int, int]
    """For each place where the file's first record stands, by index: the digest of what comes before."""
    places: Mapping[tuple[int, int], int]
    """The offsets of wanted records, by index and content."""
    end: int


def survey_here(
    prints: Iterable[Print], committed: Iterable[int] = (), skip: int = 0
) -> SurveyHere:
    """`skip` so many records, which the cluster has deleted; marks among them are left out."""
    count, digest, first = 0, 0, None
    waiting = sorted(set(committed), reverse=True)
    found: dict[int, tuple[int, int | None]] = {}
    for one in itertools.islice(prints, skip, None):
        if not count:
            first = one.content
            if skip:
                waiting = [offset for offset in waiting if offset >= one.offset]
        while waiting and waiting[-1] <= one.offset:
            found[waiting.pop()] = (count, one.content)
        digest = _grown(digest, one.content)
        count += 1
    found |= dict.fromkeys(waiting, (count, None))
    marks = {offset: Mark(count - index, content) for offset, (index, content) in found.items()}
    return SurveyHere(count, digest, first, marks)


def survey_there(prints: Iterable[Print], here: SurveyHere, ended: list[int]) -> SurveyThere:
    """`ended` holds the partition's end when the records have been read."""
    count, digest, wanted = 0, 0, here.wanted
    before: dict[int, int] = {}
    places: dict[tuple[int, int], int] = {}
    for one in prints:
        if one.content == here.first:
            before[count] = digest
        if one.content in wanted:
            places[count, one.content] = one.offset
        digest = _grown(digest, one.content)
        count += 1
    return SurveyThere(count, digest, before, places, ended[-1])


def _grown(digest: int, content: int) -> int:
    return (digest * _BASE + content + 1) % _PRIME


def difference(tp: TopicPartition, here: SurveyHere, there: SurveyThere) -> str | None:
    """Why the last records there are not those of the file; None if they are."""
    if not here.count:
        return None
    if there.count < here.count:
        return f"{tp}: the file has {here.count} records and the cluster {there.count}"
    before = there.before.get(there.count - here.count)
    if before is not None:
        whole = (before * pow(_BASE, here.count, _PRIME) + here.digest) % _PRIME
        if whole == there.digest:
            return None
    return (
        f"{tp}: the file has {here.count} records, and the last {here.count} of the {there.count} in the "
        "cluster are not the same: somebody else writes to that topic, or some went another way (a dead "
        "letter topic)"
    )


def translated(tp: TopicPartition, offset: int, here: SurveyHere, there: SurveyThere) -> int:
    """The offset there of a group that stands at `offset` here. Raises IllegalStateError when the record
    at that place is another, or has been deleted there."""
    mark = here.marks.get(offset)
    if mark is None:
        raise IllegalStateError(
            f"{tp}: the cluster has deleted records behind offset {offset} of the file that a group has "
            "not read; raise retention.ms there, and relay anew under another name"
        )
    if mark.first is None:
        return there.end
    found = there.places.get((there.count - mark.left, mark.first))
    if found is None:
        raise IllegalStateError(
            f"{tp}: {mark.left} records follow offset {offset} in the file, and the record before as many "
            "in the cluster is another one: somebody else writes to that topic"
        )
    return found


# -- a partition of a compacted topic -----------------------------------------------------------------


def compacted_difference(
    tp: TopicPartition, here: Iterable[Print], there: Iterable[Print]
) -> str | None:
    """Why the newest records of all keys differ; None if they do not."""
    ours, theirs = _newest(here), _newest(there)
    if ours == theirs:
        return None
    lacking = sum(key not in theirs for key in ours)
    more = sum(key not in ours for key in theirs)
    other = sum(theirs.get(key, content) != content for key, content in ours.items())
    return (
        f"{tp}: of {len(ours)} keys in the file the cluster lacks {lacking} and has {other} with other "
        f"records, and {more} keys are only there: somebody else writes to that topic"
    )


def _newest(prints: Iterable[Print]) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in prints:
        if one.is_tombstone:
            found.pop(one.key, None)
        else:
            found[one.key] = one.content
    return found


def compacted_translated(
    tp: TopicPartition, offset: int, here: Iterable[Print], there: Iterable[Print], end: int
) -> int:
    """The offset there of the first record from `offset` on that the cluster still has: what has been
    compacted away on one side has a newer record of its key on both. Raises IllegalStateError when there is
    none although records follow."""
    left = [one.content for one in here if one.offset >= offset]
    if not left:
        return end
    places = defaultdict[int, list[int]](list)
    for one in there:
        places[one.content].append(one.offset)
    copies = Counter(left)
    for content in left:
        if found := places.get(content):
            return found[max(len(found) - copies[content], 0)]
    raise IllegalStateError(
        f"{tp}: the cluster has none of the {len(left)} records from offset {offset} of the file on: "
        "somebody else writes to that topic"
    )
