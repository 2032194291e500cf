"""Where a relay goes on: at its position if source and target are what they were, and otherwise not without
being asked to."""

from __future__ import annotations

import pytest

from eosdb.errors import OffsetOutOfRangeError
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.status import Keeper
from eosdb.integrations.relay.values import Bounds, RelayPosition
from eosdb.model.values import TopicPartition

P0 = TopicPartition("orders", 0)
LOG = Bounds(3, 9)


def test_a_new_relay_begins_with_the_earliest_record() -> None:
    assert planning.start_of(P0, None, "id", LOG, "stop") == 3


@pytest.mark.parametrize("offset", [3, 5, 9])
@pytest.mark.parametrize(("known", "there"), [("", ""), ("", "new"), ("t", ""), ("t", "t")])
def test_a_position_within_the_log_is_where_it_goes_on(offset: int, known: str, there: str) -> None:
    """A target whose id is unknown, on either side, is no reason to stop."""
    position = RelayPosition(offset, "id", known)
    assert planning.start_of(P0, position, "id", LOG, "stop", there) == offset


@pytest.mark.parametrize(
    ("position", "target_id", "why"),
    [
        (RelayPosition(2, "id"), "", "the source begins at 3"),
        (RelayPosition(5, "other"), "", "deleted and recreated"),
        (RelayPosition(5, "id", "t"), "other", "at the target was deleted and recreated"),
        (RelayPosition(5, "id", "t"), None, "at the target was deleted,"),
    ],
)
def test_a_gap_stops_it_unless_it_may_go_on_with_the_earliest(
    position: RelayPosition, target_id: str | None, why: str
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=why):
        planning.start_of(P0, position, "id", LOG, "stop", target_id)
    assert planning.start_of(P0, position, "id", LOG, "earliest", target_id) == 3


@pytest.mark.parametrize("on_gap", planning.ON_GAP)
def test_one_offset_behind_the_end_is_another_history(on_gap: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="older copy"):
        planning.start_of(P0, RelayPosition(10, "id"), "id", LOG, on_gap)


def test_topics_with_two_underscores_are_inner_ones() -> None:
    names = ["a", "_a", "__a", "___a"]
    assert planning.wanted(names, None, "here") == ["_a", "a"]
    assert planning.wanted(names, ["__a"], "here") == ["__a"]


def test_a_position_that_was_deleted_is_gone() -> None:
    keeper = Keeper("relay", "file")
    record = keeper.position(P0, RelayPosition(2, "a"))
    assert keeper.standing([(record.key, record.value)]).positions == {P0: RelayPosition(2, "a")}
    assert keeper.standing([(record.key, record.value), (record.key, None)]).positions == {}
