"""How many partitions a CreateTopics request makes, however it says so: no more than 10,000 in all."""

from __future__ import annotations

import pytest

from tests.wire.peer import Peer
from tests.wire.test_topics import creation

POLICY_VIOLATION = 44


def codes(peer: Peer, *topics: tuple[str, int, int], count: int = 0) -> set[int]:
    """The error codes of a creation; of each topic `count` partitions are assigned explicitly."""
    assignments = {index: [1] for index in range(count)}
    request = creation(*topics, validate_only=True, assignments=assignments)
    return {topic.error_code for topic in peer.ask(request, 7).topics}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "code"), [(5_000, 0), (5_001, POLICY_VIOLATION)])
def test_explicit_assignments_count(peer: Peer, count: int, code: int) -> None:
    assert codes(peer, ("a", -1, -1), ("b", -1, -1), count=count) == {code}


@pytest.mark.parametrize(("count", "code"), [(9_999, 0), (10_000, POLICY_VIOLATION)])
def test_the_number_by_default_counts(peer: Peer, count: int, code: int) -> None:
    assert codes(peer, ("a", count, 1), ("b", -1, 1)) == {code}
