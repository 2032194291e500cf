"""Log offsets: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from eosdb.errors import EosdbError, InvalidRequestError
from eosdb.model.values import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    IsolationLevel,
    OffsetAndTimestamp,
    TopicPartition,
)
from eosdb.wire.errors import (
    FENCED_LEADER_EPOCH,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    reading_code_of,
)
from eosdb.wire.session import LEADER_EPOCH, Session

_ISOLATION_LEVELS: Final[dict[int, IsolationLevel]] = {0: "read_uncommitted", 1: "read_committed"}
NO_EPOCH: Final = -1
"""No leader epoch is given."""
_EARLIEST_LOCAL: Final = -4
"""The earliest offset of local storage, which here is the earliest offset."""
_LATEST_TIERED: Final = -5
"""The latest offset in tiered storage, which eosdb does not have."""
_KNOWN_FROM: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
}
"""The first version of ListOffsets that knows each negative timestamp."""
_NEVER: Final = 2**15


def isolation_level(number: int) -> IsolationLevel:
    """The level of a request; the broker refuses what an unknown number gives."""
    return cast(IsolationLevel, _ISOLATION_LEVELS.get(number, ""))


def list_offsets(
    session: Session, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    level = isolation_level(request.isolation_level if version >= 2 else 0)
    response = ListOffsetsResponse.ListOffsetsTopicResponse
    times = Counter(
        TopicPartition(topic.name, p.partition_index)
        for topic in request.topics
        for p in topic.partitions
    )

    def answer(
        tp: TopicPartition, timestamp: int, epoch: int
    ) -> ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse:
        code, result = checked_epoch(epoch), OffsetAndTimestamp(-1, -1)
        if times[tp] > 1:
            code = InvalidRequestError.code
        elif timestamp < 0 and version < _KNOWN_FROM.get(timestamp, _NEVER):
            code = UNSUPPORTED_VERSION
        elif code == NONE and timestamp != _LATEST_TIERED:
            lookup = EARLIEST if timestamp == _EARLIEST_LOCAL else timestamp
            code, result = _attempt(
                lambda: session.broker.list_offsets(tp, lookup, isolation_level=level)
            )
        return response.ListOffsetsPartitionResponse(
            partition_index=tp.partition,
            error_code=code,
            timestamp=result.timestamp,
            offset=result.offset,
            leader_epoch=LEADER_EPOCH if result.offset >= 0 else -1,
        )

    return ListOffsetsResponse(
        topics=[
            response(
                name=topic.name,
                partitions=[
                    answer(
                        TopicPartition(topic.name, p.partition_index),
                        p.timestamp,
                        p.current_leader_epoch if version >= 4 else -1,
                    )
                    for p in {p.partition_index: p for p in topic.partitions}.values()
                ],
            )
            for topic in request.topics
        ]
    )


def for_leader_epoch(
    session: Session, request: OffsetForLeaderEpochRequest, version: int
) -> OffsetForLeaderEpochResponse:
    """The end offset of a leader epoch: the only epoch ends at the log end offset."""
    response = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

    def answer(
        tp: TopicPartition, current: int, epoch: int
    ) -> OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset:
        code, end = checked_epoch(current), -1
        try:
            offsets = session.broker.offsets(tp)
            if code == NONE and epoch == LEADER_EPOCH:
                end = offsets.log_end_offset
        except EosdbError as error:
            code = reading_code_of(error)
        return response.EpochEndOffset(
            error_code=code,
            partition=tp.partition,
            leader_epoch=LEADER_EPOCH if end >= 0 else -1,
            end_offset=end,
        )

    return OffsetForLeaderEpochResponse(
        topics=[
            response(
                topic=topic.topic,
                partitions=[
                    answer(
                        TopicPartition(topic.topic, p.partition),
                        p.current_leader_epoch,
                        p.leader_epoch,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def checked_epoch(current: int) -> int:
    """The error code for a client's leader epoch (-1: none) other than the broker's (KIP-320)."""
    if current in (NO_EPOCH, LEADER_EPOCH):
        return NONE
    return UNKNOWN_LEADER_EPOCH if current > LEADER_EPOCH else FENCED_LEADER_EPOCH


def _attempt(ask: Callable[[], OffsetAndTimestamp]) -> tuple[int, OffsetAndTimestamp]:
    try:
        return NONE, ask()
    except EosdbError as error:
        return reading_code_of(error), OffsetAndTimestamp(-1, -1)
