"""The requests of members of the classic protocol, of the group "g" unless another is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

from tests.wire.peer import Peer, asking


def join(
    peer: Peer, member_id: str = "", version: int = 9, *, names: Sequence[str] = ("range",),
    metadata: bytes = b"what I want", **fields: Any,
) -> Any:  # fmt: skip
    given = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
    } | fields  # fmt: skip
    protocols = [{"name": name, "metadata": metadata} for name in names]
    return peer.ask(
        asking(JoinGroupRequest, member_id=member_id, protocols=protocols, **given), version
    )


def sync(
    peer: Peer, joined: Any, version: int = 5, gives: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> Any:  # fmt: skip
    """Of a member that knows its id and its generation."""
    given = {
        "group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id,
        "protocol_type": "consumer", "protocol_name": "range",
    } | fields  # fmt: skip
    shares = [{"member_id": who, "assignment": some} for who, some in (gives or {}).items()]
    return peer.ask(asking(SyncGroupRequest, assignments=shares, **given), version)


def beat(peer: Peer, joined: Any, version: int = 4, **fields: Any) -> int:
    given = {
        "group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id,
    } | fields  # fmt: skip
    return int(peer.ask(HeartbeatRequest(**given), version).error_code)


def leave(
    peer: Peer, *names: tuple[str, str | None], version: int = 5, group_id: str = "g"
) -> list[int]:
    """What each is answered."""
    members = [{"member_id": who, "group_instance_id": instance} for who, instance in names]
    answer = peer.ask(asking(LeaveGroupRequest, group_id=group_id, members=members), version)
    assert answer.error_code == 0
    return [one.error_code for one in answer.members]


def commit(
    peer: Peer, member_id: str = "", generation: int = -1, version: int = 9, *, topic: str = "t",
    index: int = 0, offset: int = 5, **fields: Any,
) -> int:  # fmt: skip
    """One offset, also of members of the new protocol: of those in an epoch."""
    given = {
        "group_id": "g", "member_id": member_id, "generation_id_or_member_epoch": generation,
    } | fields  # fmt: skip
    partitions = [{"partition_index": index, "committed_offset": offset}]
    topics = [{"name": topic, "partitions": partitions}]
    answer = peer.ask(asking(OffsetCommitRequest, topics=topics, **given), version)
    return int(answer.topics[0].partitions[0].error_code)
