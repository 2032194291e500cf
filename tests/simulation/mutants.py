"""Deliberate bugs, one at a time, to prove that the simulation would find them.

Each is a patch of one decision or one effect, the kind of mistake that a rewrite could make. `FOUND_BY`
in `found_by.json` says which seed found it; `hunt.py` searches for those seeds.
"""

from __future__ import annotations

from tests.simulation import (
    change_over_mutants,
    client_mutants,
    coordinator_mutants,
    history_mutants,
    log_mutants,
    member_mutants,
)
from tests.simulation.planting import MUTANTS

__all__ = [
    "MUTANTS",
    "change_over_mutants",
    "client_mutants",
    "coordinator_mutants",
    "history_mutants",
    "log_mutants",
    "member_mutants",
]
