"""The faults of the gauntlet, by name. Each is done to a world while its actor works, and ends."""

from __future__ import annotations

from typing import Final

from tests.trials.hunts.faults import locks, maintenance, network, pairs, signals, system
from tests.trials.hunts.faults.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for module in (signals, locks, system, network, maintenance, pairs)
    for fault in module.FAULTS
}
