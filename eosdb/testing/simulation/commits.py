"""The expected offsets of a group with commits inside and outside of transactions: the later request
wins, not the later marker.

The order of the journal shows the later request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition
from eosdb.testing.simulation.model import require

OF_ITS_OWN: Final = "offsets of "
"""Groups to which a producer commits in both ways. One request commits each offset, and may be repeated."""
Place = tuple[str, TopicPartition]


class Commits:
    def __init__(self) -> None:
        self.expected: dict[Place, int] = {}
        self.seen = 0
        """The journal position up to which requests have been read."""
        self._requested: dict[tuple[Place, int], int] = {}
        self._newest: dict[Place, int] = {}

    def add(self, requests: Iterable[tuple[int, str, str]]) -> None:
        """Add new requests: position, kind, detail. A plain commit counts at once."""
        for position, kind, detail in requests:
            self.seen = position
            event = parsed(detail)
            if not event["group_id"].startswith(OF_ITS_OWN):
                continue
            for commit in event["offsets"]:
                tp = TopicPartition(commit["topic"], commit["partition"])
                place = (event["group_id"], tp)
                self._requested[place, commit["offset"]] = position
                if kind == "OffsetsCommitted":
                    self.count(*place, commit["offset"])

    def count(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Count an offset as committed: its transaction was committed, or it was in none."""
        place = (group, tp)
        position = self._requested.get((place, offset), -1)
        require(position >= 0, f"{group} {tp}: offset {offset} counts, but was never sent")
        if position > self._newest.get(place, -1):
            self._newest[place] = position
            self.expected[place] = offset
