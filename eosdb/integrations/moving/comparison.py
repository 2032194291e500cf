"""Reads both sides of a partition, and says whether they are the same and where groups stand there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eosdb.integrations.moving import counting
from eosdb.integrations.moving.counting import Print
from eosdb.integrations.moving.here import Here
from eosdb.integrations.moving.there import There
from eosdb.integrations.moving.values import Compared, TopicHere, TopicThere
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model.values import TopicPartition


def compare(
    here: Here, there: There, topic: TopicHere, known: TopicThere, tp: TopicPartition,
    committed: Iterable[int],
) -> Compared:  # fmt: skip
    """One partition; `committed` are offsets of groups in the file. Raises IllegalStateError when the place
    of one is not found, and InterruptedRelayError."""
    timed = known.config.get("message.timestamp.type") != "LogAppendTime"
    wanted = sorted(set(committed))
    ended: list[int] = []
    theirs = _prints(there.records(tp, ended), timed)
    ours = _prints(here.records(tp), timed)
    if topic.is_compacted or "compact" in known.config.get("cleanup.policy", ""):
        return _compacted(tp, list(ours), list(theirs), ended, wanted)
    survey = counting.survey_here(ours, wanted)
    found = counting.survey_there(theirs, survey, ended)
    if found.count < survey.count and there.has_deleted(tp):
        ours = _prints(here.records(tp), timed)
        survey = counting.survey_here(ours, wanted, survey.count - found.count)
        theirs = _prints(there.records(tp, ended), timed)
        found = counting.survey_there(theirs, survey, ended)
    difference = counting.difference(tp, survey, found)
    offsets: Mapping[int, int] = {}
    if difference is None:
        offsets = {at: counting.translated(tp, at, survey, found) for at in wanted}
    return Compared(tp, survey.count, difference, offsets)


def _compacted(
    tp: TopicPartition, ours: list[Print], theirs: list[Print], ended: list[int], wanted: list[int]
) -> Compared:
    difference = counting.compacted_difference(tp, ours, theirs)
    offsets: Mapping[int, int] = {}
    if difference is None:
        offsets = {
            at: counting.compacted_translated(tp, at, ours, theirs, ended[-1]) for at in wanted
        }
    return Compared(tp, len(ours), difference, offsets)


def _prints(records: Iterable[RelayRecord], timed: bool) -> Iterator[Print]:
    return (counting.print_of(record, timed=timed) for record in records)
