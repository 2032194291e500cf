"""Compares the two sides of a partition, and translates group offsets."""

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
    here: Here, there: There, topic: TopicHere, facts: TopicThere, tp: TopicPartition,
    committed: Iterable[int],
) -> Compared:  # fmt: skip
    """Compare one partition; `committed` are group offsets in the file. Raises IllegalStateError if one of
    them has no equivalent in the cluster, and InterruptedRelayError."""
    timed = facts.config.get("message.timestamp.type") != "LogAppendTime"
    wanted = sorted(set(committed))
    ended: list[int] = []
    theirs = _prints(there.records(tp, ended), timed)
    ours = _prints(here.records(tp), timed)
    if topic.is_compacted or "compact" in facts.config.get("cleanup.policy", ""):
        return _compacted(tp, list(ours), list(theirs), ended, wanted)
    survey = counting.survey_here(ours, wanted)
    cluster_survey = counting.survey_there(theirs, survey, ended)
    if cluster_survey.count < survey.count and there.has_deleted(tp):
        ours = _prints(here.records(tp), timed)
        survey = counting.survey_here(ours, wanted, survey.count - cluster_survey.count)
        theirs = _prints(there.records(tp, ended), timed)
        cluster_survey = counting.survey_there(theirs, survey, ended)
    difference = counting.difference(tp, survey, cluster_survey)
    offsets: Mapping[int, int] = {}
    if difference is None:
        offsets = {at: counting.translated(tp, at, survey, cluster_survey) for at in wanted}
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
