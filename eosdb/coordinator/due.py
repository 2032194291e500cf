"""The remembered bound: before this time nothing is due. Whatever begins may bring it forward."""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.store.writing.unit import Memo


@dataclass(slots=True)
class Due(Memo):
    time_ms: int | None = None
    """None: not worked out yet."""

    def by(self, time_ms: int) -> None:
        """Something that begins now is due at this time; without a known bound there is nothing to do."""
        if self.time_ms is not None:
            self.time_ms = min(self.time_ms, time_ms)
