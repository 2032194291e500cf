"""ListOffsets: the offset for a timestamp in each partition.

Version 1: one offset, with its time (KIP-79); 2: isolation levels; 4: the leader's epoch (KIP-320); 6:
flexible; 7 to 9 and 11: more special timestamps (`_KNOWN_FROM`); 10: a time-out for tiered storage.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, cast

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from eosdb.errors import InvalidRequestError
from eosdb.model import requests
from eosdb.model.values import EARLIEST, LATEST, MAX_TIMESTAMP, IsolationLevel, TopicPartition
from eosdb.wire import errors
from eosdb.wire.apis import Fields, Session, partitions_of, per_partition, serves

_ISOLATION_LEVELS: Final[dict[int, IsolationLevel]] = {0: "read_uncommitted", 1: "read_committed"}
NO_EPOCH: Final = -1
_EARLIEST_LOCAL: Final = -4
"""Asks for the earliest offset in local storage (KIP-405), which here is the log start offset."""
_LATEST_TIERED: Final = -5
"""Asks for the latest offset in tiered storage (KIP-1005), which eosdb does not have."""
_EARLIEST_PENDING: Final = -6
"""Asks for the earliest offset that waits for its upload to tiered storage (KIP-1023)."""
_KNOWN_FROM: Final = {
    LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9,
    _EARLIEST_PENDING: 11,
}  # fmt: skip
"""The first version of ListOffsets that knows each special timestamp."""
_NEVER: Final = 2**15


@serves(ListOffsetsRequest, 1, 11, errors.reading_code_of)
def list_offsets(session: Session, request: ListOffsetsRequest, version: int) -> Fields:
    level = isolation_level(request.isolation_level)
    times = Counter(tp for tp, _ in partitions_of(request.topics))
    for topic in request.topics:
        topic.partitions = list({p.partition_index: p for p in topic.partitions}.values())

    def answer(tp: TopicPartition, asked: Any) -> Fields:
        timestamp = asked.timestamp
        if times[tp] > 1:
            return {"error_code": InvalidRequestError.code}
        if timestamp < 0 and version < _KNOWN_FROM.get(timestamp, _NEVER):
            return {"error_code": errors.UNSUPPORTED_VERSION}
        epochs = session.broker.ask(requests.LeaderEpochs(tp))
        code = checked_epoch(asked.current_leader_epoch, epochs.current)
        if code != errors.NONE or timestamp in (_LATEST_TIERED, _EARLIEST_PENDING):
            return {"error_code": code}
        lookup = EARLIEST if timestamp == _EARLIEST_LOCAL else timestamp
        found = session.broker.ask(requests.ListOffsets(tp, lookup, isolation_level=level))
        epoch = epochs.at(found.offset) if found.offset >= 0 else NO_EPOCH
        return {"like": found, "leader_epoch": epoch}

    return {"topics": per_partition(request.topics, answer)}


def isolation_level(number: int) -> IsolationLevel:
    """The isolation level for a number; "" for an unknown number, which the broker rejects."""
    return cast(IsolationLevel, _ISOLATION_LEVELS.get(number, ""))


def checked_epoch(known: int, current: int) -> int:
    """The error code for a client's leader epoch (-1: none), which must equal the current one (KIP-320)."""
    if known in (NO_EPOCH, current):
        return errors.NONE
    return errors.UNKNOWN_LEADER_EPOCH if known > current else errors.FENCED_LEADER_EPOCH
