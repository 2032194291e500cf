"""What is not served is not announced, so that clients say so themselves."""

from __future__ import annotations

from kafka.protocol.metadata.api_versions import ApiVersionsRequest

from tests.wire.peer import Peer

SHARE_GROUPS = {76, 77, 78, 79, *range(83, 88), 90, 91, 92}
INIT_PRODUCER_ID = 22


def test_neither_share_groups_nor_two_phase_commit_are_announced(peer: Peer) -> None:
    """decisions/0070, decisions/0071."""
    answer = peer.ask(ApiVersionsRequest(), 0)
    highest = {it.api_key: it.max_version for it in answer.api_keys}
    assert not SHARE_GROUPS & highest.keys()
    assert highest[INIT_PRODUCER_ID] == 5
