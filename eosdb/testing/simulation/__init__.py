"""A deterministic simulation of many clients on one file: one seed decides everything.

`run(Settings(seed=7))` lets producers, workers and readers live over bad networks, kills them, suspends
them, crashes the coordinator between its two steps, jumps the clock, and asks a sceptic after every step
whether exactly-once still holds.
"""

from eosdb.testing.arena import Faults
from eosdb.testing.simulation.run import ALL_ROLES, Result, Settings, run
from eosdb.testing.simulation.shrink import command, shrink

__all__ = ["ALL_ROLES", "Faults", "Result", "Settings", "command", "run", "shrink"]
