"""The remembered bound: before this time nothing is due. What begins to exist may bring it forward."""

from __future__ import annotations

from dataclasses import dataclass

from eosdb.store.writing.unit import Memo


@dataclass(slots=True)
class Due(Memo):
    time_ms: int | None = None
    """None: it is to be worked out."""

    def by(self, time_ms: int) -> None:
        """Something that begins now is due at this time; nothing is to be done where no bound is known."""
        if self.time_ms is not None:
            self.time_ms = min(self.time_ms, time_ms)
