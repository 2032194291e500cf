"""What users need to test their own exactly-once code: a clock that they move, a network that fails,
and a check of their program under many fault schedules."""

from eosdb.clock import ManualClock
from eosdb.testing.arena import Faults
from eosdb.testing.exactly_once import Instance, NotExactlyOnceError, check_exactly_once
from eosdb.testing.faulty_transport import FaultyTransport

__all__ = [
    "Faults", "FaultyTransport", "Instance", "ManualClock", "NotExactlyOnceError", "check_exactly_once",
]  # fmt: skip
