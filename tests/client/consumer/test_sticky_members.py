"""What sticky assignors tell beside the subscription: read and written as by those of other programs."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

from eosdb.client.consumer.assignors import ASSIGNORS, MemberSubscription
from eosdb.model.protocol.consumer_protocol import Subscription, encode_partitions
from eosdb.model.values import TopicPartition

STICKY, COOPERATIVE = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
HELD = Subscription((), (T0, T1), 7)


def told(user_data: bytes | None) -> Subscription:
    return Subscription(("t",), user_data=user_data)


@pytest.mark.parametrize(
    ("version", "generation", "has_version"),
    [(0, -1, False), (1, 7, False), (1, 7, True)],
    ids=["old", "Java", "kafka-python"],
)
def test_what_another_sticky_assignor_held_is_read(
    version: int, generation: int, has_version: bool
) -> None:
    schema: Any = StickyAssignorUserData
    data = schema(
        version=version,
        previous_assignment=[schema.TopicPartition(topic="t", partitions=[1, 0])],
        generation=7,
    ).encode(header=has_version)
    claimed = STICKY.claims(told(bytes(data)))
    assert (claimed.owned, claimed.generation_id) == ((T0, T1), generation)
    assert claimed.topics == ("t",)


def test_another_sticky_assignor_reads_what_is_held() -> None:
    assignor: Any = StickyPartitionAssignor
    metadata = Subscription(("t",), user_data=STICKY.user_data(HELD)).encode()
    read = assignor.parse_member_metadata(ConsumerProtocolMemberMetadata.decode(metadata))
    assert [tuple(tp) for tp in read.partitions] == [T0, T1]
    assert read.generation == 7


@pytest.mark.parametrize("data", [None, b"", b"\xff\xff\xff\xff", b"junk", b"\0\0\0\1\0\1t"])
def test_user_data_that_says_nothing_claims_nothing(data: bytes | None) -> None:
    for assignor in (STICKY, COOPERATIVE):
        if assignor is STICKY or (data != b"junk" and data != b"\xff\xff\xff\xff"):
            claimed = assignor.claims(told(data))
            assert (claimed.owned, claimed.generation_id) == ((), -1)


def test_the_generation_of_cooperative_members_is_in_the_subscription_or_beside_it() -> None:
    assert COOPERATIVE.user_data(HELD) == b"\0\0\0\7"
    held = Subscription(("t",), (T0,), user_data=b"\0\0\0\7")
    assert COOPERATIVE.claims(held).generation_id == 7
    as_librdkafka = encode_partitions([T0]) + b"\0\0\0\7"
    assert COOPERATIVE.claims(Subscription(("t",), (T0,), -1, as_librdkafka)).generation_id == 7
    both = Subscription(("t",), (T0,), 9, b"\0\0\0\7")
    assert COOPERATIVE.claims(both) == both


def test_who_has_held_nothing_tells_nothing() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor.user_data(Subscription(("t",))) is None


def test_sticky_moves_what_must_move_in_one_step() -> None:
    members = [
        MemberSubscription("a", None, Subscription(("t",), (T0, T1, T2), 1)),
        MemberSubscription("b", None, Subscription(("t",))),
    ]
    assigned = STICKY.assign(members, {"t": 3})
    assert {name: sorted(tps) for name, tps in assigned.items()} == {"a": [T0, T1], "b": [T2]}
    assert COOPERATIVE.assign(members, {"t": 3}) == {"a": [T0, T1], "b": []}


def test_of_two_claims_the_newer_one_is_kept() -> None:
    members = [
        MemberSubscription("a", None, Subscription(("t",), (T0, T1), 1)),
        MemberSubscription("b", None, Subscription(("t",), (T1, T2), 2)),
    ]
    assigned = STICKY.assign(members, {"t": 3})
    assert {name: sorted(tps) for name, tps in assigned.items()} == {"a": [T0], "b": [T1, T2]}
