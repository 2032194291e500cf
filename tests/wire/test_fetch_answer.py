"""The answer to a Fetch is in every version the bytes that kafka-python makes of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.fetch import FetchResponse

from eosdb.model.fetched import AbortedTransaction
from eosdb.wire.messages import FetchAnswer, FetchedPartition
from tests.cases import each

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(
    st.builds(
        FetchedPartition,
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**15 - 1),
        INT64,
        INT64,
        INT64,
        st.none()
        | st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64), max_size=200),
        st.lists(st.binary(max_size=300) | st.just(b"x" * 20_000), max_size=3),
    ),
    max_size=3,
)


@pytest.mark.slow
@each("version", range(4, 19))
@settings(max_examples=12)
@given(partitions=st.lists(PARTITIONS, max_size=3))
def test_it_is_encoded_as_kafka_python_would(
    version: int, partitions: list[list[FetchedPartition]]
) -> None:
    topics: dict[str | UUID, list[FetchedPartition]] = {
        UUID(int=i) if version >= 13 else "ü" * 70 * i: those for i, those in enumerate(partitions)
    }
    expected = FetchResponse(error_code=0, session_id=0, responses=[*map(named, topics.items())])
    assert b"".join(FetchAnswer(topics).encode(version)) == expected.encode(version=version)


def named(item: tuple[str | UUID, list[FetchedPartition]]) -> Any:
    answer, (name, partitions) = FetchResponse.FetchableTopicResponse, item
    if isinstance(name, UUID):
        return answer(topic_id=name, partitions=[*map(of, partitions)])
    return answer(topic=name, partitions=[*map(of, partitions)])


def of(one: FetchedPartition) -> Any:
    data = FetchResponse.FetchableTopicResponse.PartitionData
    return data(
        partition_index=one.index,
        error_code=one.code,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.log_start_offset,
        aborted_transactions=None
        if one.aborted is None
        else [
            data.AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
            for gone in one.aborted
        ],
        preferred_read_replica=-1,
        records=b"".join(one.records),
    )
