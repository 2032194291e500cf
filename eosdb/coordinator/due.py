"""The remembered bound: before this time nothing is due. Whatever begins may bring it forward, and it holds
as long as the clock does not go back."""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.store.writing.unit import Memo


@dataclass(slots=True)
class Due(Memo):
    time_ms: int | None = None
    """None: not worked out yet."""
    asked_ms: int = 0
    """The time at which it was worked out."""

    def is_over(self, now_ms: int) -> bool:
        """Whether it is to be worked out anew."""
        return self.time_ms is None or not self.asked_ms <= now_ms < self.time_ms

    def by(self, time_ms: int) -> None:
        """Something that begins now is due at this time; without a known bound there is nothing to do."""
        if self.time_ms is not None:
            self.time_ms = min(self.time_ms, time_ms)
