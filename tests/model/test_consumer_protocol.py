"""What members of a group tell each other survives the way through the group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.model.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.values import TopicPartition

partitions = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1000))


@given(st.lists(st.text(), max_size=5), st.frozensets(partitions), st.integers(-1, 2**31 - 1))
def test_a_subscription_comes_back_as_it_was_told(
    topics: list[str], owned: frozenset[TopicPartition], generation: int
) -> None:
    told = Subscription(tuple(topics), tuple(sorted(owned)), generation)
    assert decode_subscription(told.encode()) == told


@given(st.frozensets(partitions))
def test_an_assignment_comes_back_sorted(assigned: frozenset[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == tuple(sorted(assigned))


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("data", [b"", b"meta", b"[]", b"{}", b"\xff", b'{"topics":1}', b"null"])
def test_foreign_bytes_are_no_subscription(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a subscription"):
        decode_subscription(data)


@pytest.mark.parametrize("data", [b"meta", b"[]", b"\xff", b'{"t":1}', b'{"t":["x"]}'])
def test_foreign_bytes_are_no_assignment(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an assignment"):
        decode_assignment(data)
