"""A deterministic simulation of many clients on one file, driven by one seed.

`run(Settings(seed=7))` runs producers, workers and readers over faulty networks, kills and suspends them,
crashes the coordinator between its two steps, jumps the clock, and checks after every step that
exactly-once still holds.
"""

from eosdb.testing.arena import Faults
from eosdb.testing.simulation.run import ALL_ROLES, Result, Settings, command, run, shrink

__all__ = ["ALL_ROLES", "Faults", "Result", "Settings", "command", "run", "shrink"]
