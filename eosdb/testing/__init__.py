"""What users need to test their own exactly-once code: a clock that they move and a network that fails."""

from eosdb.clock import ManualClock
from eosdb.testing.faulty_transport import FaultyTransport

__all__ = ["FaultyTransport", "ManualClock"]
