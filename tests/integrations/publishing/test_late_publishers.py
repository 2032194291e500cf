"""A publisher that takes longer than it may does not name chunks that others may have removed meanwhile."""

from __future__ import annotations

import pytest

from eosdb import ManualClock
from eosdb.integrations.publishing.manifest import HURRY_S
from eosdb.model.failpoints import Failpoint, watched
from tests.integrations.publishing.conftest import Device, read


@pytest.mark.slow
@pytest.mark.parametrize(("late_ms", "is_late"), [(0, False), (1, True)])
def test_what_a_late_publisher_counted_on_is_looked_at_again(
    device: Device, clock: ManualClock, late_ms: int, is_late: bool
) -> None:
    device.publish()
    device.append(1)
    looks, named = list[Failpoint](), list[Failpoint]()

    def slow(point: Failpoint) -> None:
        if point is Failpoint.SNAPSHOT_SENT:
            named.append(point)
        if point is not Failpoint.CHUNKS_SENT:
            return
        looks.append(point)
        if len(looks) == 1:
            clock.advance(int(HURRY_S * 1_000) + late_ms)
            if is_late:  # As somebody does who finds them named by nothing that stays.
                for path in device.chunks().values():
                    path.unlink()

    with watched(slow):
        device.publish()
    assert (len(looks), len(named)) == (1 + is_late, 1)
    assert read(device.fetch()) == device.records()
