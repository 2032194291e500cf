"""What members of a group tell each other survives the way through the group, and is what other clients
write and read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.values import TopicPartition
from tests.cases import each

partitions = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1000))
_Told: Any = ConsumerProtocolSubscription
_Given: Any = ConsumerProtocolAssignment
_Owned = ConsumerProtocolSubscription.TopicPartition
_Assigned = ConsumerProtocolAssignment.TopicPartition
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.slow
@given(
    st.lists(st.text(), max_size=5),
    st.frozensets(partitions),
    st.integers(-1, 2**31 - 1),
    st.none() | st.binary(max_size=9),
)
def test_a_subscription_comes_back_as_it_was_told(
    topics: list[str], owned: frozenset[TopicPartition], generation: int, user_data: bytes | None
) -> None:
    told = Subscription(tuple(topics), tuple(sorted(owned)), generation, user_data)
    assert decode_subscription(told.encode()) == told


@pytest.mark.slow
@given(st.frozensets(partitions))
def test_an_assignment_comes_back_sorted(assigned: frozenset[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == tuple(sorted(assigned))


@pytest.mark.parametrize("version", range(4))
def test_the_subscriptions_of_other_clients_are_read(version: int) -> None:
    written = _Told(
        version=version,
        topics=["t", "ü"],
        user_data=b"mine",
        owned_partitions=[_Owned(topic="t", partitions=[1, 0])],
        generation_id=7,
        rack_id="r",
    ).encode()
    assert decode_subscription(bytes(written)) == Subscription(
        ("t", "ü"), (T0, T1) if version >= 1 else (), 7 if version >= 2 else -1, b"mine"
    )


def test_a_version_that_is_yet_to_come_is_read_as_far_as_it_is_known() -> None:
    data = Subscription(("t",), (T0,), 7).encode()
    assert decode_subscription(b"\0\x09" + data[2:] + b"more") == Subscription(("t",), (T0,), 7)
    data = encode_assignment([T0])
    assert decode_assignment(b"\0\x09" + data[2:] + b"more") == (T0,)


def test_other_clients_read_what_is_written() -> None:
    told = _Told.decode(Subscription(("t",), (T0, T1), 7, b"mine").encode())
    assert (told.version, told.topics, told.user_data) == (3, ["t"], b"mine")
    assert [(one.topic, one.partitions) for one in told.owned_partitions] == [("t", [0, 1])]
    assert (told.generation_id, told.rack_id) == (7, None)
    assigned = _Given.decode(encode_assignment([T1, T0]))
    assert [(a.topic, a.partitions) for a in assigned.assigned_partitions] == [("t", [0, 1])]


@pytest.mark.parametrize("version", range(4))
def test_the_assignments_of_other_leaders_are_read(version: int) -> None:
    written = _Given(
        version=version,
        assigned_partitions=[_Assigned(topic="t", partitions=[1, 0])],
        user_data=b"mine",
    ).encode()
    assert decode_assignment(bytes(written)) == (T0, T1)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_whatever_the_bytes_are_they_are_read_or_refused(data: bytes, version: int) -> None:
    for claimed in (data, bytes((0, version)) + data, b"{" + data):
        for read in (decode_subscription, decode_assignment):
            try:
                read(claimed)
            except ValueError as error:
                assert str(error).startswith("not a")


@each(
    "data",
    [
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\x7f\xff\xff\xff" + b"\0" * 90,
        b"\0\0\0\0\0\x01\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\x01\0\x01\xff\0\0\0\0",
        b"\0\x01" + b"\0" * 8 + b"\0\0\0\x01\0\x01t\0\0\0\x01\xff\xff\xff\xff",
        b'{"a":' * 100_000,
    ],
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a subscription"):
        decode_subscription(data)


@each("cut", range(1, 20))
def test_bytes_that_end_early_are_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="not an assignment"):
        decode_assignment(encode_assignment([T0, T1])[:cut])


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
