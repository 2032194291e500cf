"""The decisions of a relay: the offset to resume at, the next chunk, and the pauses.

Pure functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from eosdb import errors
from eosdb.integrations.relay.values import Bounds, RelayPosition, SourceTopic, TopicFacts
from eosdb.model.values import TopicPartition

ON_GAP: Final = ("stop", "earliest")
TOO_LARGE: Final = ("stop", "dead-letter")
_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 30_000
_STEPS: Final = 4
"""The number of steps in which a partition's share of a chunk grows."""
TransactionsIn = Callable[
    [TopicPartition, int, int], Iterable[Mapping[TopicPartition, tuple[int, int]]]
]
"""Returns the committed transactions with data in [from, to) of a partition: their first and last offsets
by partition."""
_NOT_COPIED: Final = ("min.insync.replicas", "leader.", "follower.", "remote.", "local.", "eosdb.")
"""Topic settings that concern brokers or the source itself, and are not copied."""


def start_of(
    tp: TopicPartition,
    position: RelayPosition | None,
    topic_id: str,
    bounds: Bounds,
    on_gap: str,
    target_id: str | None = "",
) -> int:
    """The first offset to relay. `target_id` is the id of the target's topic: None if the topic does not
    exist, empty if the id is unknown. Raises OffsetOutOfRangeError if the source has lost the next records,
    or the target the previous ones, unless `on_gap` allows to continue. Always raises it if the source has
    lost relayed records, because then it has another history."""
    if position is None:
        return bounds.start
    if position.topic_id != topic_id:
        lost = f"{tp}: the topic was deleted and recreated (its id is {topic_id}, not {position.topic_id})"
    elif position.target_id and target_id != "" and position.target_id != target_id:
        how = "was deleted and recreated" if target_id else "was deleted"
        lost = (
            f"{tp}: the topic at the target {how}, and with it the records relayed up to offset "
            f"{position.offset}"
        )
    elif position.offset > bounds.end:
        raise errors.OffsetOutOfRangeError(
            f"{tp}: relayed up to offset {position.offset}, but the source ends at {bounds.end}: it is an "
            "older copy, or has lost records; put the newer one back, or relay under another name"
        )
    elif position.offset < bounds.start:
        lost = (
            f"{tp}: relayed up to offset {position.offset}, and the source begins at {bounds.start}: the "
            "records between were deleted, by retention or by hand"
        )
    else:
        return position.offset
    if on_gap == "earliest":
        return bounds.start
    raise errors.OffsetOutOfRangeError(
        f"{lost}; on_gap='earliest' (--on-gap earliest) continues with the earliest record"
    )


def next_ranges(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    most: int,
    transactions_in: TransactionsIn,
) -> dict[TopicPartition, tuple[int, int]]:
    """The range [from, to) of each partition for the next chunk: `most` offsets in all, and only whole
    transactions, unless one does not fit. `ends` must not split transactions either."""
    behind = {tp: ends[tp] for tp, at in positions.items() if ends.get(tp, at) > at}
    if sum(end - positions[tp] for tp, end in behind.items()) <= most:
        return {tp: (positions[tp], end) for tp, end in behind.items()}
    step = max(most // (_STEPS * len(behind)), 1)
    starts = {tp: positions[tp] for tp in behind}
    taken, growing = starts, sorted(behind)
    while growing:
        for tp in list(growing):
            grown = _whole(taken, tp, min(taken[tp] + step, behind[tp]), behind, transactions_in)
            if grown == taken or _size(starts, grown) > most:
                growing.remove(tp)
            else:
                taken = grown
        if not growing and taken == starts and step > 1:
            step, growing = 1, sorted(behind)  # One transaction may fit even if two do not.
    ranges = {tp: (positions[tp], end) for tp, end in taken.items() if end > positions[tp]}
    return ranges or _shares(positions, ends, most)


def _size(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(end - starts[tp] for tp, end in ends.items())


def _whole(
    taken: Mapping[TopicPartition, int],
    tp: TopicPartition,
    end: int,
    ends: Mapping[TopicPartition, int],
    transactions_in: TransactionsIn,
) -> dict[TopicPartition, int]:
    """The end of each partition if `tp` is taken up to `end` and no transaction may be split."""
    grown, todo = {**taken, tp: end}, [(tp, taken[tp], end)]
    while todo:
        for spans in transactions_in(*todo.pop()):
            for other, (_, last) in spans.items():
                if other in grown and last >= grown[other]:
                    whole = min(last + 1, ends[other])
                    todo.append((other, grown[other], whole))
                    grown[other] = whole
    return grown


def _shares(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges of `most` offsets in all, which may split transactions. Partitions with less than an equal
    share leave the rest to the others."""
    behind = {tp: ends[tp] - at for tp, at in positions.items() if ends.get(tp, at) > at}
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    left, partitions = most, len(behind)
    for tp, count in sorted(behind.items(), key=lambda item: (item[1], item[0])):
        share = min(count, max(left // partitions, 1))
        ranges[tp] = (positions[tp], positions[tp] + share)
        left, partitions = left - share, partitions - 1
    return ranges


def checked_partitions(
    topics: Iterable[SourceTopic], facts: Mapping[str, TopicFacts], where: str
) -> None:
    """Raises InvalidPartitionsError if a topic has fewer partitions in the target than in the source."""
    for topic in topics:
        there = facts[topic.name].partitions
        if there < topic.partitions:
            raise errors.InvalidPartitionsError(
                f"topic {topic.name!r} has {topic.partitions} partitions in the source and {there} at "
                f"{where}; records keep their partition, so add some there, up to {topic.partitions}"
            )


def config_to_copy(
    config: Mapping[str, str], supported: Iterable[str] | None = None
) -> dict[str, str]:
    """The settings to copy to a created topic: those that concern records and are `supported` by the
    target."""
    names = config.keys() if supported is None else config.keys() & set(supported)
    return {name: config[name] for name in sorted(names) if not name.startswith(_NOT_COPIED)}


def wanted(available: Collection[str], requested: Iterable[str] | None, where: str) -> list[str]:
    """The topics to relay; by default all whose names do not begin with two underscores. Raises ConfigError
    if `requested` is empty, and UnknownTopicOrPartitionError for a topic that is not `available`."""
    if requested is None:
        return sorted(name for name in available if not name.startswith("__"))
    if not (names := sorted(set(requested))):
        raise errors.ConfigError("topics: got none, expected names of topics, or None for all")
    if missing := [name for name in names if name not in available]:
        raise errors.UnknownTopicOrPartitionError(
            f"{where} has no topic {missing[0]!r}; it has {', '.join(sorted(available)) or 'none'}"
        )
    return names


def pauses() -> Iterator[int]:
    """Yield the pauses before further attempts (ms), which grow up to half a minute."""
    return (min(_FIRST_PAUSE_MS * 2**number, _LONGEST_PAUSE_MS) for number in itertools.count())
