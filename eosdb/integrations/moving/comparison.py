"""Compares a partition's records in the file and in the cluster, and translates group offsets, by counting.

Records are relayed one to one and in order, so both sides have as many records between an offset and the
end. If a side has deleted its oldest records, the counts from the end still agree. Records are compared
by fingerprints: the record at a translated offset must be the same, and so must all compared records.

Pure functions, which read each side's records once.
"""

# decisions/0046: the comparison reads the records of both sides, and trusts no stored position.
from __future__ import annotations

import hashlib
import itertools
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from eosdb.errors import IllegalStateError
from eosdb.integrations.moving.here import Here, There
from eosdb.integrations.moving.plan import Compared, TopicHere, TopicThere
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model.values import TopicPartition

_PRIME: Final = 2**61 - 1
_BASE: Final = 0x5DEECE66D1CE4E5 % _PRIME
_EARLIEST_MS: Final = 1
"""The relay replaces earlier timestamps by this one, because the Kafka client takes 0 for "now"."""


class Print(NamedTuple):
    """The fingerprint of a record. `key` is the hash of its key; `is_tombstone` tells that it has no
    value."""

    offset: int
    content: int
    key: int
    is_tombstone: bool


def print_of(record: RelayRecord, *, timed: bool) -> Print:
    """The fingerprint of a record; with `timed` it includes the timestamp."""
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


# -- partitions that are not compacted ----------------------------------------------------------------


class ComparedMark(NamedTuple):
    """A committed offset: the number of records from it to the end, and the fingerprint of the first of
    them."""

    left: int
    first: int | None


@dataclass(frozen=True, slots=True)
class SurveyHere:
    """The file's records of a partition, summarised."""

    count: int
    digest: int
    first: int | None
    marks: Mapping[int, ComparedMark]


@dataclass(frozen=True, slots=True)
class SurveyThere:
    """The cluster's records of a partition, summarised."""

    count: int
    digest: int
    before: Mapping[int, int]
    """The digest of the records before each record that equals the file's first record, by its index."""
    places: Mapping[tuple[int, int], int]
    """The offsets of the wanted records, by index and fingerprint."""
    end: int


def survey_here(
    prints: Iterable[Print], committed: Iterable[int] = (), skip: int = 0
) -> SurveyHere:
    """Survey the file's records, without the first `skip` and their marks: the cluster has deleted
    these."""
    count, digest, first = 0, 0, None
    waiting = sorted(set(committed), reverse=True)
    indexes: dict[int, tuple[int, int | None]] = {}
    for fingerprint in itertools.islice(prints, skip, None):
        if not count:
            first = fingerprint.content
            if skip:
                waiting = [offset for offset in waiting if offset >= fingerprint.offset]
        while waiting and waiting[-1] <= fingerprint.offset:
            indexes[waiting.pop()] = (count, fingerprint.content)
        digest = _grown(digest, fingerprint.content)
        count += 1
    indexes |= dict.fromkeys(waiting, (count, None))
    marks = {
        offset: ComparedMark(count - index, content) for offset, (index, content) in indexes.items()
    }
    return SurveyHere(count, digest, first, marks)


def survey_there(prints: Iterable[Print], here: SurveyHere, ended: list[int]) -> SurveyThere:
    """Survey the cluster's records. `ended` contains the partition's end once all records are read."""
    count, digest = 0, 0
    wanted = {mark.first for mark in here.marks.values()}
    before: dict[int, int] = {}
    places: dict[tuple[int, int], int] = {}
    for fingerprint in prints:
        if fingerprint.content == here.first:
            before[count] = digest
        if fingerprint.content in wanted:
            places[count, fingerprint.content] = fingerprint.offset
        digest = _grown(digest, fingerprint.content)
        count += 1
    return SurveyThere(count, digest, before, places, ended[-1])


def _grown(digest: int, content: int) -> int:
    return (digest * _BASE + content + 1) % _PRIME


def difference(tp: TopicPartition, here: SurveyHere, there: SurveyThere) -> str | None:
    """Describe how the cluster's last records differ from the file's; None if they are equal."""
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
        "cluster are not the same: somebody else writes to that topic, or some went to a dead letter "
        "topic"
    )


def translated(tp: TopicPartition, offset: int, here: SurveyHere, there: SurveyThere) -> int:
    """The cluster's offset for a group's offset in the file. Raises IllegalStateError if the cluster has
    another record there, or has deleted the record."""
    mark = here.marks.get(offset)
    if mark is None:
        raise IllegalStateError(
            f"{tp}: the cluster has deleted records after offset {offset} of the file that a group has "
            "not read; raise retention.ms there, and relay again under another name"
        )
    if mark.first is None:
        return there.end
    place = there.places.get((there.count - mark.left, mark.first))
    if place is None:
        raise IllegalStateError(
            f"{tp}: the file's last {mark.left} records (from offset {offset}) and the cluster's last "
            f"{mark.left} begin with different records: somebody else writes to that topic"
        )
    return place


# -- compacted partitions -----------------------------------------------------------------------------


def compacted_difference(
    tp: TopicPartition, here: Iterable[Print], there: Iterable[Print]
) -> str | None:
    """Describe how the newest records of the keys differ; None if they are equal."""
    ours, theirs = _newest(here), _newest(there)
    if ours == theirs:
        return None
    lacking = sum(key not in theirs for key in ours)
    more = sum(key not in ours for key in theirs)
    other = sum(theirs.get(key, content) != content for key, content in ours.items())
    return (
        f"{tp}: of {len(ours)} keys in the file the cluster lacks {lacking}, {other} have other "
        f"records there, and {more} keys are only there: somebody else writes to that topic"
    )


def _newest(prints: Iterable[Print]) -> dict[int, int]:
    contents: dict[int, int] = {}
    for fingerprint in prints:
        if fingerprint.is_tombstone:
            contents.pop(fingerprint.key, None)
        else:
            contents[fingerprint.key] = fingerprint.content
    return contents


def compacted_translated(
    tp: TopicPartition, offset: int, here: Iterable[Print], there: Iterable[Print], end: int
) -> int:
    """The cluster's offset of the first record from `offset` on that the cluster still has. Compaction may
    have removed earlier ones, because newer records of their keys follow. Raises IllegalStateError if the
    cluster has no later record."""
    left = [fingerprint.content for fingerprint in here if fingerprint.offset >= offset]
    if not left:
        return end
    places = defaultdict[int, list[int]](list)
    for fingerprint in there:
        places[fingerprint.content].append(fingerprint.offset)
    copies = Counter(left)
    for content in left:
        if candidates := places.get(content):
            return candidates[max(len(candidates) - copies[content], 0)]
    raise IllegalStateError(
        f"{tp}: the cluster has none of the {len(left)} records after offset {offset} of the file: "
        "somebody else writes to that topic"
    )


def compare(
    here: Here, there: There, topic: TopicHere, facts: TopicThere, tp: TopicPartition,
    committed: Iterable[int],
) -> Compared:  # fmt: skip
    """Compare one partition; `committed` are group offsets in the file. Raises IllegalStateError if a group
    offset has no equivalent in the cluster, and InterruptedRelayError."""
    timed = facts.config.get("message.timestamp.type") != "LogAppendTime"
    wanted = sorted(set(committed))
    ended: list[int] = []
    theirs = _prints(there.records(tp, ended), timed)
    ours = _prints(here.records(tp), timed)
    if topic.is_compacted or "compact" in facts.config.get("cleanup.policy", ""):
        return _compacted(tp, list(ours), list(theirs), ended, wanted)
    survey = survey_here(ours, wanted)
    cluster_survey = survey_there(theirs, survey, ended)
    if cluster_survey.count < survey.count and there.has_deleted(tp):
        ours = _prints(here.records(tp), timed)
        survey = survey_here(ours, wanted, survey.count - cluster_survey.count)
        theirs = _prints(there.records(tp, ended), timed)
        cluster_survey = survey_there(theirs, survey, ended)
    differing = difference(tp, survey, cluster_survey)
    offsets: Mapping[int, int] = {}
    if differing is None:
        offsets = {at: translated(tp, at, survey, cluster_survey) for at in wanted}
    return Compared(tp, survey.count, differing, offsets)


def _compacted(
    tp: TopicPartition, ours: list[Print], theirs: list[Print], ended: list[int], wanted: list[int]
) -> Compared:
    difference = compacted_difference(tp, ours, theirs)
    offsets: Mapping[int, int] = {}
    if difference is None:
        offsets = {at: compacted_translated(tp, at, ours, theirs, ended[-1]) for at in wanted}
    return Compared(tp, len(ours), difference, offsets)


def _prints(records: Iterable[RelayRecord], timed: bool) -> Iterator[Print]:
    return (print_of(record, timed=timed) for record in records)
