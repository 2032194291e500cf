"""Quotas, of which there are none: shown and removed as by Kafka 4.4.0, and not set."""

from __future__ import annotations

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from tests.cases import each
from tests.wire.peer import Peer

NONE, UNSUPPORTED, BAD_REQUEST = 0, 35, 42
EXACT, DEFAULT, ANY = range(3)
Entry = AlterClientQuotasRequest.EntryData


@pytest.mark.slow
@each(
    ("components", "code"),
    [
        ([], NONE),
        ([("user", EXACT, "ann"), ("client-id", DEFAULT, None)], NONE),
        ([("ip", ANY, None)], NONE),
        ([("group", EXACT, "g")], UNSUPPORTED),
        ([("", EXACT, "g")], BAD_REQUEST),
        ([("user", EXACT, "ann"), ("user", ANY, None)], BAD_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], BAD_REQUEST),
        ([("user", EXACT, None)], BAD_REQUEST),
        ([("user", DEFAULT, "ann")], BAD_REQUEST),
        ([("user", ANY, "ann")], BAD_REQUEST),
        ([("user", 7, None)], BAD_REQUEST),
    ],
)
@each("version", range(2))
def test_nobody_has_a_quota(
    peer: Peer, version: int, components: list[tuple[str, int, str | None]], code: int
) -> None:
    """kafka-configs.sh asks for them before it shows users."""
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[component(entity_type=t, match_type=m, match=n) for t, m, n in components],
        strict=False,
    )
    answer = peer.ask(request, version)
    assert (answer.error_code, answer.entries) == (code, [] if code == NONE else None)


@pytest.mark.slow
@each(
    ("entity", "removed", "code"),
    [
        ([("user", "ann")], True, NONE),
        ([("user", None)], True, NONE),
        ([("user", "ann"), ("client-id", "c")], True, NONE),
        ([("user", "ann")], False, UNSUPPORTED),
        ([("ip", "127.0.0.1")], False, BAD_REQUEST),
        ([], True, BAD_REQUEST),
        ([("group", "g")], True, BAD_REQUEST),
        ([("user", "")], True, BAD_REQUEST),
        ([("user", "ann"), ("ip", "127.0.0.1")], False, BAD_REQUEST),
    ],
)
@each("version", range(2))
def test_a_quota_can_be_removed_and_not_set(
    peer: Peer, version: int, entity: list[tuple[str, str | None]], removed: bool, code: int
) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            Entry(
                entity=[Entry.EntityData(entity_type=t, entity_name=n) for t, n in entity],
                ops=[Entry.OpData(key="producer_byte_rate", value=1000.0, remove=removed)],
            )
        ],
        validate_only=False,
    )
    (answer,) = peer.ask(request, version).entries
    assert answer.error_code == code
    assert (answer.error_message is None) == (code == NONE)
    assert [(part.entity_type, part.entity_name) for part in answer.entity] == entity
