"""A cached lower bound of the time at which something is due, such as a time-out.

New transactions and sessions may lower it. It is computed again once it is reached, or if the clock goes
back.
"""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.store.writing.unit import BATCH, Memo


@dataclass(slots=True)
class Due(Memo):
    time_ms: int | None = None
    """The bound; None if not computed."""
    computed_ms: int = 0
    survives = BATCH

    def is_over(self, now_ms: int) -> bool:
        """Whether the bound has to be computed again."""
        return self.time_ms is None or not self.computed_ms <= now_ms < self.time_ms

    def by(self, time_ms: int) -> None:
        """Lower the bound, if any, to the due time of something that begins now."""
        if self.time_ms is not None:
            self.time_ms = min(self.time_ms, time_ms)
